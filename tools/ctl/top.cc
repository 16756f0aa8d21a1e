// cisternctl top: the pool, live.
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "tools/ctl/command_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/stats_poller.h"
#include "tools/ctl/terminal.h"
#include "tools/ctl/top_model.h"
#include "tools/ctl/top_render.h"

namespace cistern::ctl {
namespace {

constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;

struct Flags {
  std::string interval = "1s";
  uint64_t count = 0;
  bool once = false;
  std::string sort = "puts";
};

class Top {
 public:
  Top(const Context& context, absl::Duration interval, TopSort sort)
      : context_(context), interval_(interval) {
    frame_.sort = sort;
  }

  // Pages one below the other. `count` 0: until the reader has gone.
  absl::Status RunPlain(uint64_t count);
  // The whole screen, until somebody wants it back.
  absl::Status RunOnScreen();

 private:
  absl::StatusOr<std::unique_ptr<AdminClient>> Admin() const { return context_.Admin(); }
  absl::Status FirstAnswer();
  void Print();
  void Take(const absl::StatusOr<admin::StatsReply>& answer);
  void Show(Terminal& terminal);
  // False: somebody wants to leave.
  bool OnKey(char key, StatsPoller& poller);

  const Context& context_;
  const absl::Duration interval_;
  Clock& clock_ = Clock::Real();
  std::unique_ptr<AdminClient> admin_;
  TopModel model_;
  TopFrame frame_;
  bool paused_ = false;
};

// Where nobody answers from the start it is a mistake, not an outage: its error is the command's.
absl::Status Top::FirstAnswer() {
  CISTERN_ASSIGN_OR_RETURN(const Connection connection, ResolveConnection(context_.connection));
  frame_.master = connection.master;
  CISTERN_ASSIGN_OR_RETURN(admin_, Admin());
  CISTERN_ASSIGN_OR_RETURN(const admin::StatsReply reply, admin_->Stats());
  model_.Update(reply);
  return absl::OkStatus();
}

void Top::Take(const absl::StatusOr<admin::StatsReply>& answer) {
  frame_.trouble = std::string(answer.status().message());
  if (answer.ok()) model_.Update(*answer);
  model_.Sort(frame_.sort);
}

void Top::Print() {
  frame_.now = clock_.Wall();
  if (context_.json()) {
    context_.out << TopJson(model_.view(), frame_) << "\n" << std::flush;
    return;
  }
  for (const std::string& line : RenderTop(model_.view(), frame_)) context_.out << line << "\n";
  context_.out << "\n" << std::flush;
}

absl::Status Top::RunPlain(uint64_t count) {
  CISTERN_RETURN_IF_ERROR(FirstAnswer());
  MonoTime due = clock_.Mono();
  for (uint64_t round = 0; count == 0 || round < count; ++round) {
    // Rates need two answers: the first page comes after one interval.
    due = std::max(due + interval_, clock_.Mono());
    clock_.SleepFor(due - clock_.Mono());
    if (admin_ == nullptr) {
      absl::StatusOr<std::unique_ptr<AdminClient>> again = Admin();
      if (again.ok()) admin_ = *std::move(again);
    }
    absl::StatusOr<admin::StatsReply> answer =
        admin_ == nullptr ? absl::UnavailableError("the master is not to be found")
                          : admin_->Stats();
    // The endpoints file may name other ports by the next time.
    if (!answer.ok()) admin_ = nullptr;
    Take(answer);
    Print();
    if (!context_.out) return absl::OkStatus();  // the reader has gone
  }
  return absl::OkStatus();
}

void Top::Show(Terminal& terminal) {
  frame_.now = clock_.Wall();
  terminal.Show(RenderTop(model_.view(), frame_),
                absl::StrCat(" q quit   s sort by ", TopSortName(NextTopSort(frame_.sort)),
                             "   space ask now   p ", paused_ ? "go on" : "pause", "   every ",
                             absl::FormatDuration(interval_), " "));
}

bool Top::OnKey(char key, StatsPoller& poller) {
  switch (key) {
    case 'q':
    case 'Q':
    case kCtrlC:
    case kCtrlD:
      return false;
    case 's':
      frame_.sort = NextTopSort(frame_.sort);
      model_.Sort(frame_.sort);
      return true;
    case 'p':
      paused_ = !paused_;
      return true;
    case ' ':
      poller.AskNow();
      return true;
    default:
      return true;
  }
}

absl::Status Top::RunOnScreen() {
  CISTERN_RETURN_IF_ERROR(FirstAnswer());
  CISTERN_ASSIGN_OR_RETURN(const std::unique_ptr<Terminal> owned,
                           Terminal::Open(STDIN_FILENO, STDOUT_FILENO));
  Terminal& terminal = *owned;
  StatsPoller poller([this] { return Admin(); }, interval_, [&terminal] { terminal.Wake(); },
                     clock_);
  model_.Sort(frame_.sort);
  while (true) {
    Show(terminal);
    switch (terminal.Wait(absl::Hours(1))) {
      case Terminal::Event::kLeave:
        return absl::OkStatus();
      case Terminal::Event::kKey:
        if (!OnKey(terminal.key(), poller)) return absl::OkStatus();
        break;
      case Terminal::Event::kWake:
        if (const auto answer = poller.Take(); answer.has_value() && !paused_) {
          // What no waiting cures ends it.
          if (absl::IsPermissionDenied(answer->status())) return answer->status();
          Take(*answer);
        }
        break;
      case Terminal::Event::kSize:
      case Terminal::Event::kTimeout:
        break;
    }
  }
}

absl::Status RunTop(const Context& context, const Flags& flags) {
  const absl::StatusOr<uint64_t> interval_ms = ParseMillis(flags.interval);
  if (!interval_ms.ok()) return Annotate(interval_ms.status(), "--interval");
  if (*interval_ms < 100 || *interval_ms > 3'600'000) {
    return absl::InvalidArgumentError("--interval is from 100ms to 1h");
  }
  const std::optional<TopSort> sort = ParseTopSort(flags.sort);
  if (!sort.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("--sort: there is no '", flags.sort, "'"));
  }
  Top top(context, absl::Milliseconds(static_cast<int64_t>(*interval_ms)), *sort);
  const uint64_t count = flags.once ? 1 : flags.count;
  const bool screen = count == 0 && !context.json() && &context.out == &std::cout &&
                      isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  if (!screen) return top.RunPlain(count);
  return top.RunOnScreen();
}

}  // namespace

void AddTop(const Command& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  const Command sub =
      app.AddCommand("top", "The pool, live: what each store and namespace does a second; q quits");
  sub.AddOption("-i,--interval", flags->interval, "ask the master so often")
      .Type("TIME")
      .ShowDefault();
  sub.AddOption("-n,--count", flags->count,
                "print so many pages and stop; 0 = a live screen on a terminal, else for ever");
  sub.AddFlag("--once", flags->once, "the same as --count 1: rates over one interval");
  sub.AddOption("-s,--sort", flags->sort, "name, fill, puts, gets, hits, bytes or evictions")
      .OneOf({"name", "fill", "puts", "gets", "hits", "bytes", "evictions"})
      .ShowDefault();
  sub.OnUse([&context, flags] { context.Run([&] { return RunTop(context, *flags); }); });
}

}  // namespace cistern::ctl
