// cisternctl segments: the memory that the stores export.
#include <CLI/CLI.hpp>

#include "base/status.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/render.h"

namespace cistern::ctl {
namespace {

absl::Status Segments(const Context& context) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::SegmentsReply reply, admin->Segments());
  context.Print(reply, RenderSegments(reply));
  return absl::OkStatus();
}

}  // namespace

void AddSegments(CLI::App& app, Context& context) {
  CLI::App* sub = app.add_subcommand(
      "segments", "The segments of every store: size, free bytes, headers, where they lie");
  sub->callback([&context] { context.Run([&] { return Segments(context); }); });
}

}  // namespace cistern::ctl
