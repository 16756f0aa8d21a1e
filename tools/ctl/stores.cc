// cisternctl stores: the stores of the pool.
#include <CLI/CLI.hpp>

#include "base/status.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/render.h"

namespace cistern::ctl {
namespace {

absl::Status Stores(const Context& context) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply reply, admin->Stats());
  context.Print(reply, RenderStores(reply), "stores");
  return absl::OkStatus();
}

}  // namespace

void AddStores(CLI::App& app, Context& context) {
  CLI::App* sub = app.add_subcommand("stores", "The stores: state, fill, chunks, traffic");
  sub->callback([&context] { context.Run([&] { return Stores(context); }); });
}

}  // namespace cistern::ctl
