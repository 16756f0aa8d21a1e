#include "transport/driver.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "transport/io_thread.h"

namespace cistern::transport {
namespace {

uint64_t NextDriverId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Driver::Driver(IoThread* io) : io_(io), id_(NextDriverId()) {}
Driver::~Driver() { io_->Forget(id_); }

void Driver::Enter() {
  ++blocked_;
  while (running_) free_.Wait(mutex_);
  --blocked_;
  running_ = true;
}

void Driver::Submit(absl::AnyInvocable<void()> fn) {
  {
    MutexLock lock(mutex_);
    inbox_.push_back(std::move(fn));
    if (running_) return;  // the one inside will find it before it leaves
    running_ = true;
  }
  RunAndLeave();
}

void Driver::SubmitAndWait(absl::AnyInvocable<void()> fn) {
  {
    MutexLock lock(mutex_);
    Enter();
  }
  fn();
  RunAndLeave();
}

void Driver::Drive(short revents) {
  {
    MutexLock lock(mutex_);
    Enter();
  }
  OnDrive(revents);
  RunAndLeave();
}

void Driver::DriveFromIoThread(short revents) {
  bool mine = false;
  {
    MutexLock lock(mutex_);
    if (revents != 0) armed_ = false;
    // If it was our timer that brought us here, the thread has none any more: the next has to be
    // told to it even though the descriptor is still watched. (A waiter was told its own.)
    if (poller_kind_ != PollerKind::kWaiter) polled_.timer = MonoTime::Infinite();
    if (poller_kind_ != PollerKind::kIoThread) return;
    Enter();
    // Else taken over while we waited; the new poller sees the same events.
    mine = poller_kind_ == PollerKind::kIoThread;
  }
  if (mine) OnDrive(revents);
  RunAndLeave();
}

void Driver::RunAndLeave() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      batch_.swap(inbox_);
    }
    if (!batch_.empty()) {
      for (auto& fn : batch_) fn();
      batch_.clear();
      OnSubmitted();
    }
    const Interest interest = CurrentInterest();
    const bool background = HasBackgroundWork();
    MutexLock lock(mutex_);
    if (!inbox_.empty()) continue;
    interest_ = interest;
    background_ = background;
    if (poller_kind_ == PollerKind::kWaiter) {
      // Whoever sleeps in poll() must learn of what it does not wait for yet.
      const bool more = interest.drive_now || interest.fd != polled_.fd ||
                        (interest.events & ~polled_.events) != 0 || interest.timer < polled_.timer;
      if (more) poller_->Wake();
    } else if (background) {
      HandToIoThreadLocked();
    } else {
      // A one-shot arming that is left behind is ignored when it fires.
      poller_kind_ = PollerKind::kNone;
    }
    running_ = false;
    if (blocked_ > 0) free_.NotifyOne();
    return;
  }
}

void Driver::HandToIoThreadLocked() {
  poller_kind_ = PollerKind::kIoThread;
  poller_ = nullptr;
  if (armed_ && !interest_.drive_now && interest_.fd == polled_.fd &&
      interest_.events == polled_.events && interest_.timer >= polled_.timer) {
    return;
  }
  armed_ = true;
  polled_ = interest_;
  // Under the lock, so that armings and disarmings reach the kernel in the order of the decisions;
  // epoll_ctl does not block.
  io_->Arm(*this, interest_);
}

void Driver::BeforeClose() {
  MutexLock lock(mutex_);
  if (armed_) io_->Disarm(polled_.fd);
  armed_ = false;
}

bool Driver::Attach(Waiter* waiter, Interest* interest) {
  MutexLock lock(mutex_);
  if (poller_kind_ == PollerKind::kWaiter && poller_ != waiter) {
    if (std::find(line_.begin(), line_.end(), waiter) == line_.end()) line_.push_back(waiter);
    return false;
  }
  if (armed_) io_->Disarm(polled_.fd);
  armed_ = false;
  poller_kind_ = PollerKind::kWaiter;
  poller_ = waiter;
  polled_ = interest_;
  *interest = interest_;
  // It is served now; a strand that has more to do says so when it is left.
  interest_.drive_now = false;
  return true;
}

void Driver::Detach(Waiter* waiter) {
  MutexLock lock(mutex_);
  line_.erase(std::remove(line_.begin(), line_.end(), waiter), line_.end());
  if (poller_kind_ != PollerKind::kWaiter || poller_ != waiter) return;
  if (!line_.empty()) {
    poller_ = line_.front();
    line_.erase(line_.begin());
    polled_ = Interest{};
    poller_->Wake();
  } else if (background_) {
    HandToIoThreadLocked();
  } else {
    poller_kind_ = PollerKind::kNone;
    poller_ = nullptr;
  }
}

}  // namespace cistern::transport
