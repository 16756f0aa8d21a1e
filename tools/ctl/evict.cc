// cisternctl evict: make room by hand.

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

struct Flags {
  std::string ns;
  std::string bytes;
  bool all = false;
};

absl::Status Evict(const Context& context, const Flags& flags) {
  if (flags.ns.empty() && flags.bytes.empty() && !flags.all) {
    return absl::InvalidArgumentError("say what to evict: --namespace NAME, --bytes SIZE or --all");
  }
  admin::EvictRequest request;
  request.set_namespace_name(flags.ns);
  if (!flags.bytes.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseSize(flags.bytes);
    if (!bytes.ok()) return Annotate(bytes.status(), "--bytes");
    if (*bytes == 0) return absl::InvalidArgumentError("--bytes must not be 0");
    request.set_bytes(*bytes);
  }
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::EvictReply reply, admin->Evict(request));
  context.Print(reply, absl::StrCat("evicting ", Plural(reply.chunks(), "chunk"), ", ",
                                    Bytes(reply.bytes()), "\n"));
  return absl::OkStatus();
}

}  // namespace

void AddEvict(const Command& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub =
      app.AddCommand("evict", "Evict the chunks that would go first; leased and pinned ones stay");
  sub.AddOption("-n,--namespace", flags->ns, "only of this namespace");
  sub.AddOption("--bytes", flags->bytes, "so much, such as 10GiB; default: all that may go")
      .Type("SIZE");
  sub.AddFlag("--all", flags->all, "from every namespace, all that may go");
  sub.OnUse([&context, flags] { context.Run([&] { return Evict(context, *flags); }); });
}

}  // namespace cistern::ctl
