// cisternctl version: what runs here and there.

#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/status.h"
#include "client/client.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"

namespace cistern::ctl {
namespace {

absl::Status Version(const Context& context) {
  const std::string ours = absl::StrCat("cisternctl ", std::string(ClientVersion()), " (",
                                        BuildMode(), ", ", CommitId(), ")\n");
  if (!context.json()) context.out << ours;
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::VersionReply reply, admin->Version());
  context.Print(
      reply, absl::StrCat("cistern-master ", reply.software_version(), " (", reply.build_mode(),
                          ", ", reply.commit(), "), protocol ", reply.protocol_major(), ", pool ",
                          reply.pool_id(), ", epoch ", reply.epoch(), "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddVersion(const Command& app, Context& context) {
  const Command sub = app.AddCommand("version", "The versions of this tool and of the master");
  sub.OnUse([&context] { context.Run([&] { return Version(context); }); });
}

}  // namespace cistern::ctl
