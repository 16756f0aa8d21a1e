#include "master/core_driver.h"

namespace cistern::master {

CoreDriver::CoreDriver(Options options, StateStore& state, Clock& clock)
    : clock_(clock), core_(std::move(options.core), state), removals_(options.max_removals) {}

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
    MutexLock lock(mutex_);
    over = call.Step(core_, clock_.Mono());
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
    MutexLock lock(mutex_);
    over = removal->call.FinishStep(core_, in_time);
  }
  removal->done(removal->call.status(), removal->reply, in_time);
}

void CoreDriver::Dispatch() {
  {
    MutexLock lock(dispatch_mutex_);
    if (dispatching_) {
      dispatch_again_ = true;
      return;
    }
    dispatching_ = true;
  }
  while (true) {
    while (DispatchOnce()) {
    }
    MutexLock lock(dispatch_mutex_);
    if (!dispatch_again_) {
      dispatching_ = false;
      return;
    }
    dispatch_again_ = false;
  }
}

bool CoreDriver::DispatchOnce() {
  std::vector<SessionId> sessions;
  RemovalTable::Removals complete;
  {
    MutexLock lock(mutex_);
    sessions = core_.SessionsWithOutput();
    for (const RemovalTicket ticket : core_.TakeFinishedRemovals()) {
      if (auto removal = removals_.TakeWaiting(ticket)) complete.push_back(std::move(removal));
    }
  }
  bool delivered = false;
  for (const SessionId session : sessions) {
    if (output_ == nullptr || !output_->CanTake(session)) continue;
    std::vector<wire::MasterMessage> messages;
    {
      MutexLock lock(mutex_);
      core_.TakeOutgoing(session, kMessagesAtOnce, &messages);
    }
    if (messages.empty()) continue;
    output_->Deliver(session, std::move(messages));
    delivered = true;
  }
  for (std::unique_ptr<Removal>& removal : complete) End(std::move(removal), /*in_time=*/true);
  return delivered;
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
