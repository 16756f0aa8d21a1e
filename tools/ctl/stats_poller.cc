#include "tools/ctl/stats_poller.h"

#include <utility>

namespace cistern::ctl {

StatsPoller::StatsPoller(MakeAdmin make_admin, absl::Duration interval,
                         std::function<void()> on_answer, Clock& clock)
    : make_admin_(std::move(make_admin)),
      interval_(interval),
      on_answer_(std::move(on_answer)),
      clock_(clock),
      thread_([this] { Run(); }) {}

StatsPoller::~StatsPoller() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (admin_ != nullptr) admin_->Cancel();
    changed_.NotifyAll();
  }
  thread_.join();
}

std::optional<absl::StatusOr<admin::StatsReply>> StatsPoller::Take() {
  MutexLock lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

void StatsPoller::AskNow() {
  MutexLock lock(mutex_);
  now_ = true;
  changed_.NotifyAll();
}

absl::StatusOr<admin::StatsReply> StatsPoller::Ask() {
  std::shared_ptr<AdminClient> admin;
  {
    MutexLock lock(mutex_);
    admin = admin_;
  }
  if (admin == nullptr) {
    absl::StatusOr<std::unique_ptr<AdminClient>> made = make_admin_();
    if (!made.ok()) return made.status();
    admin = *std::move(made);
    MutexLock lock(mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    admin_ = admin;
  }
  return admin->Stats();
}

void StatsPoller::Run() {
  MonoTime due = clock_.Mono();
  while (true) {
    absl::StatusOr<admin::StatsReply> answer = Ask();
    const bool failed = !answer.ok();
    {
      MutexLock lock(mutex_);
      if (failed) admin_ = nullptr;
      answer_ = std::move(answer);
    }
    on_answer_();
    due = std::max(due + interval_, clock_.Mono());
    MutexLock lock(mutex_);
    while (!stopping_ && !std::exchange(now_, false)) {
      const absl::Duration left = due - clock_.Mono();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mutex_, left);
    }
    if (stopping_) return;
  }
}

}  // namespace cistern::ctl
