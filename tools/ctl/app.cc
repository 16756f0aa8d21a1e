#include "tools/ctl/app.h"

#include <CLI/CLI.hpp>

#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/context.h"

namespace cistern::ctl {
namespace {

constexpr char kFooter[] = R"(
Where the pool is: --master (and --data) HOST:PORT, or --endpoints with the
endpoints.json that a master writes into its run_dir, or --config with a client's
TOML file; without any, this host's default ports (7601 and 7600).

Examples:
  cisternctl stats
  cisternctl top
  cisternctl --master 10.0.0.1:7601 --token-file /etc/cistern/token stores
  cisternctl -o json stats | jq .pool.chunk_count
  cisternctl put greeting ./file && cisternctl get greeting ./copy
  cisternctl chunks rm --namespace llama-70b --all

Exit codes: 0 done; 1 not found, refused or failed; 2 wrong arguments or files;
3 no master or store answered in time, or the only store that has the chunk is
away; 4 the pool token is wrong or missing.)";

}  // namespace

int RunApp(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  Context context{.out = out, .err = err};
  CLI::App app("Looks into a Cistern pool and manages it.", "cisternctl");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("-m,--master", context.connection.master, "the master's gRPC port")
      ->type_name("HOST:PORT");
  app.add_option("-d,--data", context.connection.data, "the master's data port (ping, put, get)")
      ->type_name("HOST:PORT");
  app.add_option("-t,--token-file", context.connection.token_file,
                 "the pool token, a file of mode 0600")
      ->type_name("FILE");
  app.add_option("-e,--endpoints", context.connection.endpoints, "the master's endpoints.json")
      ->type_name("FILE");
  app.add_option("--config", context.connection.config, "a client's configuration")
      ->type_name("FILE");
  app.add_option("-o,--output", context.output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  app.add_option("--timeout", context.timeout,
                 "of each call (default: the configuration file's deadline, else 5s)")
      ->type_name("TIME");
  const Command root(&app);
  AddStats(root, context);
  AddStores(root, context);
  AddSegments(root, context);
  AddNamespaces(root, context);
  AddChunks(root, context);
  AddPut(root, context);
  AddGet(root, context);
  AddEvict(root, context);
  AddPing(root, context);
  AddTop(root, context);
  AddDoctor(root, context);
  AddVersion(root, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? kExitOk : kExitUsage;
  }
  return context.exit_code;
}

}  // namespace cistern::ctl
