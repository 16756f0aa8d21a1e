// One call of the library's user: what its steps share.
//
// An operation is a chain of steps. A step starts calls on channels (or waits for the budget, or
// for a while); the last of them to end runs the next step, on whichever thread drives it; the last
// step calls Finish(). A thread that waits drives the connections itself. Synchronous calls are
// operations that their caller waits for at once.
//
//   1. Launch() registers it and runs Begin().
//   2. Steps run, never two at a time. Each first looks at Interrupted().
//   3. Finish(). No byte of the caller's memory is in use any more.
//
// Whoever may run a step holds a shared_ptr, so an operation outlives its calls.
#ifndef CISTERN_CLIENT_OPERATION_H_
#define CISTERN_CLIENT_OPERATION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/client.h"
#include "client/inflight_budget.h"
#include "transport/channel.h"
#include "transport/io_context.h"

namespace cistern {

class Operation;

// The operations under way, and the callers' threads that are inside the library, for the client's
// end. Thread-safe.
class OperationSet {
 public:
  // False once CancelAll has begun.
  bool Add(Operation* operation);
  void Remove(Operation* operation);
  // A caller's thread comes in, to use channels and the I/O context. False once CancelAll has
  // begun: it must use neither. Each that came in leaves.
  bool Enter();
  void Leave();
  // Cancels all, waits for their ends and for the threads inside to leave, and admits no more. Ends
  // soon: what is inside waits for operations only, and these were cancelled.
  void CancelAll();

 private:
  Mutex mutex_;
  CondVar left_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<Operation*> live_ ABSL_GUARDED_BY(mutex_);
};

// What operations borrow from their client.
struct OperationEnv {
  transport::IoContext* io = nullptr;
  Clock* clock = nullptr;
  InflightBudget* budget = nullptr;
  OperationSet* live = nullptr;
};

struct OperationOptions {
  MonoTime deadline;
  Priority priority = Priority::kNormal;
  bool async = false;  // nobody need wait for it: the I/O thread drives it
};

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Once, by whoever made it.
  void Launch();

  // --- For its user, any thread ---
  bool Done() const { return done_.load(std::memory_order_acquire); }
  // Drives the calls. For threads that the OperationSet has let in, and its CancelAll.
  void Wait();
  // The same without driving: somebody else does (the I/O thread, or whoever closes the client).
  void WaitIdly() { WaitFor(absl::InfiniteDuration()); }
  // False when `timeout` passed first. Does not drive the calls. For async ones: what nobody waits
  // for goes on all the same.
  bool WaitFor(absl::Duration timeout);
  // The same, driving them: for threads that the OperationSet has let in.
  bool DriveFor(absl::Duration timeout);
  // See Pending.
  int EventFd();
  void Cancel();

  // --- For its steps and calls ---
  // Why no further step should be tried: Cancelled, DeadlineExceeded, or OK.
  absl::Status Interrupted() const;
  MonoTime deadline() const { return options_.deadline; }
  Priority priority() const { return options_.priority; }
  Clock& clock() const { return *env_.clock; }
  // What is left until the deadline, for the wire: 1 ms at least.
  uint32_t RemainingMs() const;
  void StartCall(transport::Channel& channel, transport::CallSpec spec,
                 transport::CallHandler* handler);
  // Runs `step` after `delay`, or at the deadline or a cancel, whichever is first. On any thread.
  void After(absl::Duration delay, absl::AnyInvocable<void()> step);
  // Runs `step(true)` once `bytes` are granted (the step gives them back), or `step(false)` at the
  // deadline or a cancel.
  void AcquireBudget(uint64_t bytes, absl::AnyInvocable<void(bool granted)> step);
  void ReleaseBudget(uint64_t bytes) { env_.budget->Release(bytes); }

 protected:
  Operation(const OperationEnv& env, const OperationOptions& options);
  virtual void Begin() = 0;
  // For WaitUntil's `enough`: something it looks at has changed.
  void Progressed();
  // Waits, driving the calls, until `enough` (called with a lock held: it may take none), the
  // operation's end, or `until`. Async ones only.
  void WaitUntil(MonoTime until, absl::FunctionRef<bool()> enough);
  // The end; nothing of `this` may be used by the step after it.
  void Finish();

 private:
  void FireTimer(uint64_t id);

  const OperationEnv env_;
  const OperationOptions options_;
  transport::CallGroup group_;
  std::atomic<bool> cancelled_{false};

  Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> done_{false};  // written under mutex_
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  int event_fd_ ABSL_GUARDED_BY(mutex_) = -1;
  bool budget_timer_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, absl::AnyInvocable<void()>> timers_ ABSL_GUARDED_BY(mutex_);
};

// Counts the calls of a step; whoever ends the last one runs the next step. Made for one step at a
// time: Begin, Add for each call, then End by the starter and by each call.
class StepCount {
 public:
  void Begin() { count_.store(1, std::memory_order_relaxed); }
  void Add() { count_.fetch_add(1, std::memory_order_relaxed); }
  // True for the last one.
  bool End() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  std::atomic<int> count_{0};
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_OPERATION_H_
