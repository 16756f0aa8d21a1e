// How a waiting thread drives its own calls (IoContext::Wait):
//
//   1. It enters the group as a waiter, so that whoever ends the last call wakes it.
//   2. For each driver (connection) that holds calls of the group it becomes the poller, or stands
//      in line for it.
//   3. It polls the descriptors it is the poller of and its own eventfd, until the earliest timer,
//      and drives what is ready; then again from 2 until no call is pending.
//   4. It leaves every driver; one whose role it had goes to the next in line, or to the I/O thread
//      if calls are left that nobody waits for.
#include "transport/io_context.h"

#include <poll.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "transport/driver.h"
#include "transport/group_state.h"
#include "transport/io_context_access.h"
#include "transport/io_thread.h"
#include "transport/waiter.h"

namespace cistern::transport {
namespace {

// How long a thread that nobody can wake waits before it looks again.
constexpr absl::Duration kBlindWait = absl::Milliseconds(5);

class IoContextImpl final : public IoContext {
 public:
  explicit IoContextImpl(const Options& options) : thread_(options.clock) {}
  absl::Status Start() { return thread_.Start(); }

  void Wait(CallGroup& group) override {
    WaitUntil(group, MonoTime::Infinite(), [] { return false; });
  }
  void WaitUntil(CallGroup& group, MonoTime until, absl::FunctionRef<bool()> enough) override;
  void RunAt(MonoTime when, absl::AnyInvocable<void()> fn) override {
    thread_.RunAt(when, std::move(fn));
  }
  void AbandonAfterFork() override { thread_.AbandonAfterFork(); }
  IoThread& thread() { return thread_; }

 private:
  IoThread thread_;
};

// One thread's stay in Wait.
class Stay {
 public:
  Stay(Clock& clock, std::shared_ptr<GroupState> group)
      : clock_(clock), group_(std::move(group)), waiter_(Waiter::ForThisThread()) {
    group_->AddWaiter(&waiter_);
  }
  ~Stay() {
    for (const auto& driver : drivers_) driver->Detach(&waiter_);
    group_->RemoveWaiter(&waiter_);
  }

  void Run(MonoTime until, absl::FunctionRef<bool()> enough) {
    while (group_->pending() > 0 && !enough()) {
      if (until != MonoTime::Infinite() && clock_.Mono() >= until) return;
      UpdateDrivers();
      if (AttachAll()) continue;  // something was driven: look again
      Poll(until);
    }
  }

 private:
  void UpdateDrivers() {
    const uint64_t before = version_;
    group_->Drivers(&version_, &next_);
    if (version_ == before) return;
    for (const auto& driver : drivers_) {
      if (std::find(next_.begin(), next_.end(), driver) == next_.end()) driver->Detach(&waiter_);
    }
    drivers_.swap(next_);
    next_.clear();
  }

  // Fills polls_ and timer_. True: a driver asked to be driven before anything is polled, and was.
  bool AttachAll() {
    polls_.clear();
    polled_.clear();
    timer_ = MonoTime::Infinite();
    polls_.push_back({waiter_.fd(), POLLIN, 0});
    for (const auto& driver : drivers_) {
      Driver::Interest interest;
      if (!driver->Attach(&waiter_, &interest)) continue;
      if (interest.drive_now) {
        driver->Drive(0);
        return true;
      }
      polls_.push_back({interest.fd, interest.events, 0});
      polled_.push_back({driver.get(), interest.timer});
      timer_ = std::min(timer_, interest.timer);
    }
    return false;
  }

  void Poll(MonoTime until) {
    timespec timeout{};
    timespec* limit = nullptr;
    const MonoTime first = std::min(timer_, until);
    absl::Duration wait = first - clock_.Mono();
    if (waiter_.fd() < 0) wait = std::min(wait, kBlindWait);
    if (wait < absl::InfiniteDuration()) {
      timeout = absl::ToTimespec(std::max(wait, absl::ZeroDuration()));
      limit = &timeout;
    }
    const int n = ppoll(polls_.data(), polls_.size(), limit, nullptr);
    if (n < 0) return;  // a signal
    if (polls_[0].revents != 0) waiter_.Drain();
    const bool timers =
        timer_ != MonoTime::Infinite() && ((n == 0 && timer_ <= until) || clock_.Mono() >= timer_);
    for (size_t i = 0; i < polled_.size(); ++i) {
      const short revents = polls_[i + 1].revents;
      if (revents != 0 || (timers && polled_[i].timer == timer_)) {
        polled_[i].driver->Drive(revents);
        if (group_->pending() == 0) return;
      }
    }
  }

  struct Polled {
    Driver* driver;
    MonoTime timer;
  };
  Clock& clock_;
  const std::shared_ptr<GroupState> group_;
  Waiter& waiter_;
  uint64_t version_ = 0;
  std::vector<std::shared_ptr<Driver>> drivers_;
  std::vector<std::shared_ptr<Driver>> next_;
  absl::InlinedVector<pollfd, 8> polls_;
  absl::InlinedVector<Polled, 8> polled_;
  MonoTime timer_ = MonoTime::Infinite();
};

void IoContextImpl::WaitUntil(CallGroup& group, MonoTime until, absl::FunctionRef<bool()> enough) {
  const std::shared_ptr<GroupState> state = GroupState::Of(group);
  if (state->pending() == 0) return;
  Stay(thread_.clock(), state).Run(until, enough);
}

}  // namespace

absl::StatusOr<std::unique_ptr<IoContext>> IoContext::Create(Options options) {
  auto context = std::make_unique<IoContextImpl>(options);
  if (absl::Status status = context->Start(); !status.ok()) return status;
  return context;
}

IoThread* IoThreadOf(IoContext* context) { return &static_cast<IoContextImpl*>(context)->thread(); }

}  // namespace cistern::transport
