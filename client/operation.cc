#include "client/operation.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace cistern {

bool OperationSet::Add(Operation* operation) {
  MutexLock lock(mutex_);
  if (!closed_) live_.insert(operation);
  return !closed_;
}

void OperationSet::Remove(Operation* operation) {
  MutexLock lock(mutex_);
  live_.erase(operation);
}

bool OperationSet::Enter() {
  MutexLock lock(mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void OperationSet::Leave() {
  MutexLock lock(mutex_);
  if (--inside_ == 0 && closed_) left_.NotifyAll();
}

void OperationSet::CancelAll() {
  std::vector<std::shared_ptr<Operation>> all;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    // Those here have not finished, so somebody holds them.
    for (Operation* operation : live_) all.push_back(operation->shared_from_this());
  }
  for (const auto& operation : all) operation->Cancel();
  for (const auto& operation : all) operation->Wait();
  MutexLock lock(mutex_);
  while (inside_ > 0) left_.Wait(mutex_);
}

namespace {

// With something to run when idle, the I/O thread drives the group while nobody waits.
transport::CallGroup MakeGroup(bool async) {
  if (async) return transport::CallGroup([] {});
  return transport::CallGroup();
}

}  // namespace

Operation::Operation(const OperationEnv& env, const OperationOptions& options)
    : env_(env), options_(options), group_(MakeGroup(options.async)) {}

Operation::~Operation() {
  if (event_fd_ >= 0) close(event_fd_);
}

void Operation::Launch() {
  if (!env_.live->Add(this)) cancelled_ = true;
  Begin();
}

void Operation::Wait() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (group_.pending() == 0) {
        if (done_) return;
        // A step waits for the budget or for a while: whoever starts the next call wakes us, and
        // we go on driving.
        ++waiters_;
        changed_.Wait(mutex_);
        --waiters_;
        continue;
      }
    }
    env_.io->Wait(group_);
  }
}

bool Operation::WaitFor(absl::Duration timeout) {
  const MonoTime until =
      timeout == absl::InfiniteDuration() ? MonoTime::Infinite() : env_.clock->Mono() + timeout;
  MutexLock lock(mutex_);
  while (!done_) {
    const MonoTime now = env_.clock->Mono();
    if (now >= until) return false;
    ++waiters_;
    if (until == MonoTime::Infinite()) {
      changed_.Wait(mutex_);
    } else {
      changed_.WaitFor(mutex_, until - now);
    }
    --waiters_;
  }
  return true;
}

bool Operation::DriveFor(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) {
    Wait();
    return true;
  }
  WaitUntil(env_.clock->Mono() + timeout, [] { return false; });
  return Done();
}

void Operation::WaitUntil(MonoTime until, absl::FunctionRef<bool()> enough) {
  while (!enough() && !Done()) {
    const MonoTime now = env_.clock->Mono();
    if (now >= until) return;
    {
      MutexLock lock(mutex_);
      if (group_.pending() == 0) {
        // See Wait(). Whatever makes `enough` true comes here after it, to wake us.
        if (done_ || enough()) return;
        ++waiters_;
        if (until == MonoTime::Infinite()) {
          changed_.Wait(mutex_);
        } else {
          changed_.WaitFor(mutex_, until - now);
        }
        --waiters_;
        continue;
      }
    }
    env_.io->WaitUntil(group_, until, enough);
  }
}

void Operation::Progressed() {
  group_.WakeWaiters();
  MutexLock lock(mutex_);
  if (waiters_ > 0) changed_.NotifyAll();
}

int Operation::EventFd() {
  MutexLock lock(mutex_);
  if (event_fd_ < 0) event_fd_ = eventfd(done_ ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  return event_fd_;
}

void Operation::Cancel() {
  decltype(timers_) timers;
  {
    MutexLock lock(mutex_);
    if (done_) return;
    cancelled_ = true;
    timers.swap(timers_);
  }
  const auto self = shared_from_this();  // the steps run here may be the last to hold it
  group_.Cancel();
  env_.budget->Withdraw(this);
  for (auto& [id, step] : timers) step();
}

absl::Status Operation::Interrupted() const {
  if (cancelled_) return absl::CancelledError("cancelled by the caller");
  if (env_.clock->Mono() >= options_.deadline) {
    return absl::DeadlineExceededError("the call's deadline has passed");
  }
  return absl::OkStatus();
}

uint32_t Operation::RemainingMs() const {
  const int64_t ms = absl::ToInt64Milliseconds(options_.deadline - env_.clock->Mono());
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, UINT32_MAX));
}

void Operation::StartCall(transport::Channel& channel, transport::CallSpec spec,
                          transport::CallHandler* handler) {
  spec.deadline = options_.deadline;
  channel.Start(std::move(spec), handler, &group_);
  // A cancel that came between the step's look and the start has missed this call.
  if (cancelled_) group_.Cancel();
  MutexLock lock(mutex_);
  if (waiters_ > 0) changed_.NotifyAll();
}

void Operation::After(absl::Duration delay, absl::AnyInvocable<void()> step) {
  mutex_.Lock();
  if (cancelled_) {
    mutex_.Unlock();
    return step();
  }
  const uint64_t id = ++next_timer_;
  timers_.emplace(id, std::move(step));
  mutex_.Unlock();
  const MonoTime when = std::min(env_.clock->Mono() + delay, options_.deadline);
  env_.io->RunAt(when, [weak = weak_from_this(), id] {
    if (const auto self = weak.lock()) self->FireTimer(id);
  });
}

void Operation::FireTimer(uint64_t id) {
  absl::AnyInvocable<void()> step;
  {
    MutexLock lock(mutex_);
    const auto found = timers_.find(id);
    if (found == timers_.end()) return;
    step = std::move(found->second);
    timers_.erase(found);
  }
  step();
}

void Operation::AcquireBudget(uint64_t bytes, absl::AnyInvocable<void(bool granted)> step) {
  auto answered = std::make_shared<std::atomic<bool>>(false);
  env_.budget->Acquire(
      bytes, options_.priority == Priority::kBackground, this,
      [self = shared_from_this(), answered, step = std::move(step)](bool granted) mutable {
        *answered = true;
        step(granted);
      });
  if (*answered) return;
  if (cancelled_) return env_.budget->Withdraw(this);
  {
    MutexLock lock(mutex_);
    if (std::exchange(budget_timer_, true)) return;
  }
  env_.io->RunAt(options_.deadline, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->env_.budget->Withdraw(self.get());
  });
}

void Operation::Finish() {
  env_.live->Remove(this);
  MutexLock lock(mutex_);
  done_ = true;
  if (event_fd_ >= 0) {
    const uint64_t one = 1;
    // Cannot fail: the counter is 0 before.
    [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof(one));
  }
  changed_.NotifyAll();
}

}  // namespace cistern
