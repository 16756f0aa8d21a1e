// cisternctl namespaces [ls|rm]: the namespaces of the pool.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"
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

void AddNamespaces(CLI::App& app, Context& context) {
  CLI::App* sub = app.add_subcommand("namespaces", "List or remove namespaces; without a verb: ls");
  sub->require_subcommand(0, 1);
  CLI::App* ls = sub->add_subcommand("ls", "Every namespace with its chunks, bytes and options");
  ls->callback([&context] { context.Run([&] { return List(context); }); });
  CLI::App* rm = sub->add_subcommand("rm", "Remove a namespace, its options and all its chunks");
  auto name = std::make_shared<std::string>();
  auto force = std::make_shared<bool>(false);
  rm->add_option("name", *name, "the namespace")->required();
  rm->add_flag("--force", *force, "though chunks are leased or pinned");
  rm->callback([&context, name, force] {
    admin::RemoveNamespaceRequest request;
    request.set_name(*name);
    request.set_force(*force);
    context.Run([&] { return Remove(context, request); });
  });
  sub->callback([&context, sub] {
    if (sub->get_subcommands().empty()) context.Run([&] { return List(context); });
  });
}

}  // namespace cistern::ctl
