#include "master/core_driver.h"

#include "base/fault.h"

namespace cistern::master {

namespace {

constexpr int kLooks = 1'000;  // 20 to 50 us

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

CoreDriver::CoreDriver(Options options, StateStore& state, Clock& clock)
    : clock_(clock), core_(std::move(options.core), state), removals_(options.max_removals) {}

// Most slices are shorter than falling asleep and being woken takes: who is next looks for a while
// first. It is one thread at most, behind the turnstile.
void CoreDriver::Enter() {
  MutexLock next(turnstile_);
  for (int look = 0; look < kLooks; ++look) {
    if (mutex_.TryLock()) return;
    Pause();
  }
  mutex_.Lock();
}

// The time is read under the lock: what waited for it is not held up by itself.
CoreDriver::CoreLock::CoreLock(CoreDriver& driver)
    : driver_((driver.Enter(), driver)),
      begin_(driver.clock_.Mono()),
      measure_cpu_(CISTERN_FAULT("master.core.measure_cpu")) {
  if (measure_cpu_) cpu_ = ThreadCpuTime();
}

CoreDriver::CoreLock::~CoreLock() {
  if (measure_cpu_) driver_.hold_times_.AddCpu(ThreadCpuTime() - cpu_);
  driver_.hold_times_.Add(driver_.clock_.Mono() - begin_);
  driver_.mutex_.Unlock();
}

HoldTimes CoreDriver::hold_times() {
  MutexLock lock(mutex_);
  return hold_times_;
}

void CoreDriver::Remove(std::unique_ptr<Removal> removal) {
  absl::Status status = removal->call.Prepare();
  if (status.ok()) {
    MutexLock lock(mutex_);
    if (closed_) status = absl::UnavailableError("the master is stopping");
    if (removals_.full()) {
      status = absl::ResourceExhaustedError("too many removals wait for the stores; try again");
    }
  }
  if (!status.ok()) return removal->done(status, removal->reply, /*complete=*/false);
  Advance(std::move(removal));
  Dispatch();
}

void CoreDriver::Advance(std::unique_ptr<Removal> removal) {
  RemoveCall& call = removal->call;
  bool stopping = false;
  bool over = false;
  while (!over && !stopping) {
    CoreLock lock(*this);
    over = call.Step(core_, lock.begin());
    stopping = closed_;
    if (stopping) continue;
    // Registered before the lock is free: the records may come at once.
    if (!over && call.blocked()) return removals_.AddBlocked(std::move(removal));
    if (over && call.status().ok() && call.ticket() != RemovalTicket(0)) {
      return removals_.AddWaiting(call.ticket(), std::move(removal));
    }
  }
  End(std::move(removal), /*in_time=*/!stopping);
}

void CoreDriver::End(std::unique_ptr<Removal> removal, bool in_time) {
  bool over = false;
  while (!over) {
    CoreLock lock(*this);
    over = removal->call.FinishStep(core_, in_time);
  }
  removal->done(removal->call.status(), removal->reply, in_time);
}

void CoreDriver::Dispatch() {
  ToDispatch what;
  what.every_session = true;
  DispatchWhat(std::move(what));
}

void CoreDriver::DispatchTo(SessionId session) {
  ToDispatch what;
  what.sessions.insert(session);
  DispatchWhat(std::move(what));
}

void CoreDriver::DispatchWhat(ToDispatch what) {
  {
    MutexLock lock(dispatch_mutex_);
    if (dispatching_) {
      to_dispatch_.every_session |= what.every_session;
      to_dispatch_.sessions.insert(what.sessions.begin(), what.sessions.end());
      return;
    }
    dispatching_ = true;
  }
  while (true) {
    if (what.every_session) {
      for (const SessionId session :
           With([](MasterCore&core, MonoTime) { return core.SessionsWithOutput(); })) {
        DeliverTo(session);
      }
    } else {
      for (const SessionId session : what.sessions) DeliverTo(session);
    }
    EndFinishedRemovals();
    MutexLock lock(dispatch_mutex_);
    if (to_dispatch_.empty()) {
      dispatching_ = false;
      return;
    }
    what = std::exchange(to_dispatch_, ToDispatch());
  }
}

void CoreDriver::DeliverTo(SessionId session) {
  while (output_ != nullptr && output_->CanTake(session)) {
    std::vector<wire::MasterMessage> messages;
    With([&](MasterCore& core, MonoTime) {
      core.TakeOutgoing(session, kMessagesAtOnce, &messages);
    });
    if (messages.empty()) return;
    output_->Deliver(session, std::move(messages));
  }
}

void CoreDriver::EndFinishedRemovals() {
  RemovalTable::Removals finished;
  {
    CoreLock lock(*this);
    for (const RemovalTicket ticket : core_.TakeFinishedRemovals()) {
      if (auto removal = removals_.TakeWaiting(ticket)) finished.push_back(std::move(removal));
    }
  }
  for (std::unique_ptr<Removal>& removal : finished) End(std::move(removal), /*in_time=*/true);
}

void CoreDriver::StepRemovals() {
  RemovalTable::Removals expired;
  RemovalTable::Removals blocked;
  {
    MutexLock lock(mutex_);
    if (removals_.size() == 0) return;
    expired = removals_.TakeExpired(clock_.Mono());
    blocked = removals_.TakeBlocked();
  }
  for (std::unique_ptr<Removal>& removal : expired) End(std::move(removal), /*in_time=*/false);
  for (std::unique_ptr<Removal>& removal : blocked) Advance(std::move(removal));
  if (!blocked.empty()) Dispatch();
}

void CoreDriver::Close() {
  RemovalTable::Removals rest;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    rest = removals_.TakeExpired(MonoTime::Infinite());
  }
  for (std::unique_ptr<Removal>& removal : rest) End(std::move(removal), /*in_time=*/false);
}

}  // namespace cistern::master
