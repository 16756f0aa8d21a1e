// cisternctl namespaces [ls|rm]: the namespaces of the pool.

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/render.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

absl::Status List(const Context& context) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply reply, admin->Stats());
  context.Print(reply, RenderNamespaces(reply), "namespaces");
  return absl::OkStatus();
}

absl::Status Remove(const Context& context, const admin::RemoveNamespaceRequest& request) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::RemoveNamespaceReply reply,
                           admin->RemoveNamespace(request));
  context.Print(reply, absl::StrCat("removed namespace ", request.name(), " and ",
                                    Plural(reply.chunks_removed(), "chunk"), "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddNamespaces(const Command& app, Context& context) {
  const Command sub = app.AddCommand("namespaces", "List or remove namespaces; without a verb: ls");
  sub.RequireCommands(0, 1);
  const Command ls = sub.AddCommand("ls", "Every namespace with its chunks, bytes and options");
  ls.OnUse([&context] { context.Run([&] { return List(context); }); });
  const Command rm = sub.AddCommand("rm", "Remove a namespace, its options and all its chunks");
  auto name = std::make_shared<std::string>();
  auto force = std::make_shared<bool>(false);
  rm.AddOption("name", *name, "the namespace").Required();
  rm.AddFlag("--force", *force, "though chunks are leased or pinned");
  rm.OnUse([&context, name, force] {
    admin::RemoveNamespaceRequest request;
    request.set_name(*name);
    request.set_force(*force);
    context.Run([&] { return Remove(context, request); });
  });
  sub.OnUse([&context, sub] {
    if (!sub.has_command()) context.Run([&] { return List(context); });
  });
}

}  // namespace cistern::ctl
