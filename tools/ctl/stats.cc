// cisternctl stats: the whole pool on one page.

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/proto_json.h"
#include "tools/ctl/render.h"

namespace cistern::ctl {
namespace {

struct Flags {
  std::string every;
  uint64_t count = 0;
};

absl::Status Stats(const Context& context, const Flags& flags) {
  CISTERN_ASSIGN_OR_RETURN(auto admin, context.Admin());
  if (flags.every.empty()) {
    CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply reply, admin->Stats());
    context.Print(reply, RenderStats(reply));
    return absl::OkStatus();
  }
  const absl::StatusOr<uint64_t> period_ms = ParseMillis(flags.every);
  if (!period_ms.ok()) return Annotate(period_ms.status(), "--every");
  for (uint64_t round = 0; flags.count == 0 || round < flags.count; ++round) {
    if (round > 0) Clock::Real().SleepFor(absl::Milliseconds(static_cast<int64_t>(*period_ms)));
    CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply reply, admin->Stats());
    context.out << (context.json() ? ToJson(reply, /*compact=*/true) : RenderStats(reply)) << "\n"
                << std::flush;
    if (!context.out) return absl::OkStatus();  // the reader has gone
  }
  return absl::OkStatus();
}

}  // namespace

void AddStats(const Command& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub = app.AddCommand(
      "stats",
      "The whole pool: what it holds, why chunks were missed and evicted, which wires carry it");
  sub.AddOption("--every", flags->every, "print again every so often: 500ms, 5s").Type("TIME");
  sub.AddOption("--count", flags->count, "with --every: stop after so many; 0 = never");
  sub.OnUse([&context, flags] { context.Run([&] { return Stats(context, *flags); }); });
}

}  // namespace cistern::ctl
