// cisternctl stores: the stores of the pool.

#include "base/status.h"
#include "tools/ctl/command_line.h"
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

void AddStores(const Command& app, Context& context) {
  const Command sub = app.AddCommand("stores", "The stores: state, fill, chunks, traffic");
  sub.OnUse([&context] { context.Run([&] { return Stores(context); }); });
}

}  // namespace cistern::ctl
