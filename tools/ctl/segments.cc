// cisternctl segments [ls|mount|unmount]: the memory that the stores export.

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/render.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

struct Flags {
  std::string store;
  std::string segment;  // unmount
  bool cancel = false;  // unmount
  std::string bytes;    // mount, as are the rest
  std::string name;
  std::string kind = "file";
  std::string huge_pages;
  std::string deadline = "5m";
};

absl::StatusOr<absl::Duration> Patience(const Flags& flags) {
  const absl::StatusOr<uint64_t> ms = ParseMillis(flags.deadline);
  if (!ms.ok()) return Annotate(ms.status(), "--deadline");
  if (*ms == 0) return absl::InvalidArgumentError("--deadline must not be 0");
  return absl::Milliseconds(static_cast<int64_t>(*ms));
}

absl::Status List(const Context& context) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::SegmentsReply reply, admin->Segments());
  context.Print(reply, RenderSegments(reply));
  return absl::OkStatus();
}

absl::Status Mount(const Context& context, const Flags& flags) {
  admin::MountSegmentRequest request;
  request.set_store(flags.store);
  request.set_name(flags.name);
  request.set_kind(flags.kind);
  request.set_huge_pages(flags.huge_pages);
  if (flags.bytes.empty() && flags.name.empty()) {
    return absl::InvalidArgumentError(
        "say how large: --bytes SIZE (or --name of a configured segment that was unmounted)");
  }
  if (!flags.bytes.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseSize(flags.bytes);
    if (!bytes.ok()) return Annotate(bytes.status(), "--bytes");
    if (*bytes == 0) return absl::InvalidArgumentError("--bytes must not be 0");
    request.set_bytes(*bytes);
  }
  CISTERN_ASSIGN_OR_RETURN(const absl::Duration patience, Patience(flags));
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin(patience));
  CISTERN_ASSIGN_OR_RETURN(const admin::MountSegmentReply reply, admin->MountSegment(request));
  const admin::SegmentStats& segment = reply.segment();
  context.Print(reply, absl::StrCat("store ", Printable(segment.store()), " has segment ",
                                    Printable(segment.name()), ", ", Bytes(segment.bytes()),
                                    ", at ", Printable(segment.path()), "\n"));
  return absl::OkStatus();
}

absl::Status Unmount(const Context& context, const Flags& flags) {
  admin::UnmountSegmentRequest request;
  request.set_store(flags.store);
  request.set_segment(flags.segment);
  request.set_cancel(flags.cancel);
  CISTERN_ASSIGN_OR_RETURN(const absl::Duration patience, Patience(flags));
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin(patience));
  CISTERN_ASSIGN_OR_RETURN(const admin::UnmountSegmentReply reply, admin->UnmountSegment(request));
  const admin::SegmentStats& segment = reply.segment();
  const std::string what =
      absl::StrCat("segment ", Printable(segment.name()), " of store ", Printable(segment.store()));
  const std::string evicted = absl::StrCat(Plural(reply.evicted_chunks(), "chunk"), ", ",
                                           Bytes(reply.evicted_bytes()), " evicted");
  if (flags.cancel) {
    context.Print(reply, absl::StrCat(what, " stays mounted; ", evicted, "\n"));
    return absl::OkStatus();
  }
  if (reply.pending()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " is not unmounted yet: ", Plural(segment.headers_used(), "chunk"),
                     " still being read or written; it goes on (", evicted,
                     " so far): see cisternctl segments, or take it back with --cancel"));
  }
  context.Print(reply, absl::StrCat(what, " unmounted, ", Bytes(segment.bytes()), " given back; ",
                                    evicted, "\n"));
  return absl::OkStatus();
}

void AddMount(const Command& segments, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub = segments.AddCommand(
      "mount", "Give a running store another segment; it keeps it over restarts");
  sub.AddOption("-s,--store", flags->store, "its name, id or number").Required();
  sub.AddOption("--bytes", flags->bytes, "such as 8GiB").Type("SIZE");
  sub.AddOption("--name", flags->name, "of the file; default dram-N");
  sub.AddOption("--kind", flags->kind, "file (outlives the store's process) or memfd")
      .OneOf({"file", "memfd"})
      .ShowDefault();
  sub.AddOption("--huge-pages", flags->huge_pages, "default: as the store's configuration says")
      .OneOf({"never", "try", "require"});
  sub.AddOption("--deadline", flags->deadline, "allocating takes about a second for 4 GiB")
      .Type("TIME")
      .ShowDefault();
  sub.OnUse([&context, flags] { context.Run([&] { return Mount(context, *flags); }); });
}

void AddUnmount(const Command& segments, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub = segments.AddCommand(
      "unmount",
      "Take a segment from a running store for good: its chunks are evicted, leased ones too (gets "
      "under way complete), and its memory is the host's again");
  sub.AddOption("-s,--store", flags->store, "its name, id or number").Required();
  sub.AddOption("--segment", flags->segment, "its name or id").Required();
  sub.AddOption("--deadline", flags->deadline,
                "how long to wait for chunks being read; the unmount goes on")
      .Type("TIME")
      .ShowDefault();
  sub.AddFlag("--cancel", flags->cancel, "take back an unmount that is not over");
  sub.OnUse([&context, flags] { context.Run([&] { return Unmount(context, *flags); }); });
}

}  // namespace

void AddSegments(const Command& app, Context& context) {
  const Command sub =
      app.AddCommand("segments", "List, mount or unmount the stores' segments; without a verb: ls");
  sub.RequireCommands(0, 1);
  const Command ls =
      sub.AddCommand("ls", "Every segment: size, free bytes, headers, where it lies");
  ls.OnUse([&context] { context.Run([&] { return List(context); }); });
  AddMount(sub, context);
  AddUnmount(sub, context);
  sub.OnUse([&context, sub] {
    if (!sub.has_command()) context.Run([&] { return List(context); });
  });
}

}  // namespace cistern::ctl
