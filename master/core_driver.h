// The lock around the functional core, and the way out for what the core has to say.
#ifndef CISTERN_MASTER_CORE_DRIVER_H_
#define CISTERN_MASTER_CORE_DRIVER_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "master/hold_times.h"
#include "master/master_core.h"
#include "master/removal_table.h"

namespace cistern::master {

// Where messages to the stores go. Called without a lock held, one call at a time.
class SessionOutput {
 public:
  virtual ~SessionOutput() = default;
  // Whether this session's stream is open and has room.
  virtual bool CanTake(SessionId session) = 0;
  virtual void Deliver(SessionId session, std::vector<wire::MasterMessage> messages) = 0;
};

// Promise: the core is only touched under the lock, and nothing else happens under it: batches are
// worked off in slices with the lock free between them, messages and answers go out after it. Who
// waits for the lock has it after the slice that runs, and not after the batch.
// Role: the frame, session and admin services and the ticker share one. Thread-safe. Owns the core
// and the removals that wait; borrows the rest.
class CoreDriver {
 public:
  // Messages taken from the core for one session at a time.
  static constexpr size_t kMessagesAtOnce = 16;

  struct Options {
    MasterOptions core;
    size_t max_removals = 10'000;
  };
  CoreDriver(Options options, StateStore& state, Clock& clock);

  Clock& clock() { return clock_; }
  // Set once, before anything is served.
  void SetOutput(SessionOutput* output) { output_ = output; }

  // Returns fn(core, now).
  template <typename Fn>
  auto With(Fn&& fn) {
    CoreLock lock(*this);
    return std::forward<Fn>(fn)(core_, lock.begin());
  }
  // Runs one of the core's sliced calls (calls.h, session_call.h) to its end.
  template <typename Call>
  void Run(Call& call) {
    bool over = false;
    while (!over) {
      over = With([&call](MasterCore& core, MonoTime now) { return call.Step(core, now); });
    }
  }
  // Runs a removal; `done` follows when the stores have reported it or its deadline has come.
  // ResourceExhausted at once when too many wait.
  void Remove(std::unique_ptr<Removal> removal);

  // Delivers what the core has queued for the stores, and ends the removals that are complete.
  // After any call that may have caused such. Where another thread is at it already, it is left to
  // that one.
  void Dispatch();
  // The same for what a store's own message can have caused: of messages only those to itself.
  void DispatchTo(SessionId session);
  // How long the lock was held so far. The threads' own time is measured while the fault point
  // "master.core.measure_cpu" is armed: it takes two system calls each time.
  HoldTimes hold_times() ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes on with the removals that were blocked, and ends those whose time has come. Periodically.
  void StepRemovals();
  // Ends all removals, and refuses further ones: the daemon stops.
  void Close();

 private:
  // A mutex alone may be had again by the thread that has just let it go, slice after slice, before
  // one that sleeps for it has woken up. So whoever is next holds the turnstile until it has the
  // lock.
  void Enter() ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex_);

  // Holds the lock, and notes for how long.
  class ABSL_SCOPED_LOCKABLE CoreLock {
   public:
    explicit CoreLock(CoreDriver& driver) ABSL_EXCLUSIVE_LOCK_FUNCTION(driver.mutex_);
    ~CoreLock() ABSL_UNLOCK_FUNCTION();
    CoreLock(const CoreLock&) = delete;
    CoreLock& operator=(const CoreLock&) = delete;
    MonoTime begin() const { return begin_; }

   private:
    CoreDriver& driver_;
    const MonoTime begin_;
    const bool measure_cpu_;
    absl::Duration cpu_;
  };

  // Steps a removal until it waits, is blocked, or ends.
  void Advance(std::unique_ptr<Removal> removal);
  // Writes the outcome of what was waited for, and answers.
  void End(std::unique_ptr<Removal> removal, bool in_time);
  // What was asked of the dispatcher.
  struct ToDispatch {
    bool every_session = false;
    absl::flat_hash_set<SessionId> sessions;
    bool empty() const { return !every_session && sessions.empty(); }
  };
  void DispatchWhat(ToDispatch what);
  void DeliverTo(SessionId session);
  void EndFinishedRemovals();

  Clock& clock_;
  SessionOutput* output_ = nullptr;

  Mutex turnstile_;
  Mutex mutex_;
  HoldTimes hold_times_ ABSL_GUARDED_BY(mutex_);
  MasterCore core_ ABSL_GUARDED_BY(mutex_);
  RemovalTable removals_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  // One dispatcher at a time keeps each session's messages in order.
  Mutex dispatch_mutex_;
  bool dispatching_ ABSL_GUARDED_BY(dispatch_mutex_) = false;
  ToDispatch to_dispatch_ ABSL_GUARDED_BY(dispatch_mutex_);
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_CORE_DRIVER_H_
