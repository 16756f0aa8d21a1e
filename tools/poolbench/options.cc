#include "tools/poolbench/options.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/string_view.h"
#include "tools/ctl/table.h"

namespace cistern::poolbench {
namespace {

constexpr char kFooter[] = R"(
Measures put, get and lookup through the client library; without an operation, the
usual ones: get and put of 1MiB and 64KiB chunks, lookup of 1,024 keys. Starts a pool of
its own on loopback and removes it, unless --master names one. Every byte got is checked
against its digest, as always.

--baseline measures the limits in the same run, turn by turn with ours: a bare TCP pair that
moves the same bytes between working sets as large as ours over as many connections; for
lookups, an echo of the lookup's bytes over bare TCP and over gRPC. Results are medians of
the rounds, beside their limit as a ratio.

Examples:
  poolbench --baseline
  poolbench get --chunk-bytes 64KiB --batch 64 --seconds 5
  poolbench lookup --batch 1024 --threads 2 --json out.json

Exit codes: 0 measured; 1 something failed; 2 wrong flags.)";

void AddSize(CLI::App& app, const std::string& name, uint64_t& value, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [&value, name](const std::string& text) {
           const absl::StatusOr<uint64_t> bytes = ParseSize(text);
           if (!bytes.ok()) {
             throw CLI::ValidationError(name, std::string(StdView(bytes.status().message())));
           }
           value = *bytes;
         },
         help)
      ->type_name("SIZE");
}

std::vector<Case> UsualCases() {
  return {{Kind::kGet, 1 << 20, 16},
          {Kind::kPut, 1 << 20, 16},
          {Kind::kGet, 64 << 10, 64},
          {Kind::kPut, 64 << 10, 64},
          {Kind::kLookup, 4096, 1024}};
}

}  // namespace

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kPut:
      return "put";
    case Kind::kGet:
      return "get";
    case Kind::kLookup:
      return "lookup";
  }
  return "";
}

std::string Case::Title() const {
  if (kind == Kind::kLookup) return absl::StrCat("lookup, ", ctl::Count(batch), " keys a call");
  return absl::StrCat(KindName(kind), ", chunks of ", ctl::Bytes(chunk_bytes), ", ",
                      ctl::Count(batch), " a call");
}

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  std::string operation;
  uint64_t chunk_bytes = 0;
  uint64_t batch = 0;
  CLI::App app("Measures a Cistern pool.", "poolbench");
  app.footer(kFooter);
  app.add_option("operation", operation, "put, get or lookup; default: the usual ones")
      ->check(CLI::IsMember({"put", "get", "lookup"}));
  app.add_option("--wire", options.wire, "auto, tcp, shm or rdma")
      ->check(CLI::IsMember({"auto", "tcp", "shm", "rdma"}))
      ->capture_default_str();
  AddSize(app, "--chunk-bytes", chunk_bytes, "bytes of a chunk (1MiB; lookup: 4KiB)");
  app.add_option("--batch", batch, "chunks, or keys, a call (16; lookup: 1024)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--threads", options.threads, "calling threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each round")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "whose median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--stores", options.stores, "of the pool that is started")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  AddSize(app, "--working-set", options.working_set_bytes, "bytes put and got (512MiB)");
  app.add_flag("--baseline", options.baseline, "measure the limits too");
  app.add_option("--json", options.json, "write the results there as well")->type_name("FILE");
  app.add_option("--master", options.master, "measure this pool: its master's data port")
      ->type_name("HOST:PORT");
  app.add_option("--token-file", options.token_file, "that pool's token")->type_name("FILE");
  app.add_option("--commit", options.commit)->group("");  // hidden; for scripts
  try {
    app.parse(argc, argv);
    if (operation.empty()) {
      if (chunk_bytes != 0 || batch != 0) {
        throw CLI::ValidationError("--chunk-bytes and --batch need an operation");
      }
      options.cases = UsualCases();
    } else {
      Case one;
      one.kind = operation == "put" ? Kind::kPut : operation == "get" ? Kind::kGet : Kind::kLookup;
      const bool lookup = one.kind == Kind::kLookup;
      one.chunk_bytes = chunk_bytes != 0 ? chunk_bytes : lookup ? kMinChunkBytes : 1 << 20;
      one.batch = batch != 0 ? batch : lookup ? 1024 : 16;
      options.cases = {one};
    }
    for (const Case& c : options.cases) {
      if (c.chunk_bytes < kMinChunkBytes || c.chunk_bytes > kMaxChunkBytes) {
        throw CLI::ValidationError("--chunk-bytes", "a chunk has 4 KiB to 1 GiB");
      }
      if (c.chunk_bytes * c.batch > options.working_set_bytes) {
        throw CLI::ValidationError("--working-set", "holds less than one call's chunks");
      }
    }
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

}  // namespace cistern::poolbench
