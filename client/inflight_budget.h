// How many payload bytes this client has asked for, from all stores together.
//
// Many stores that answer at once overrun a receiver's link (incast): a call takes its bytes from
// the budget before it is started and gives them back when it has ended.
#ifndef CISTERN_CLIENT_INFLIGHT_BUDGET_H_
#define CISTERN_CLIENT_INFLIGHT_BUDGET_H_

#include <cstdint>
#include <deque>

#include "absl/functional/any_invocable.h"
#include "base/mutex.h"

namespace cistern {

// Thread-safe. First come, first served, but for background work: it waits behind all else.
// A call larger than the whole budget runs alone.
class InflightBudget {
 public:
  explicit InflightBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}

  // Runs `start(true)` once `bytes` are granted: at once, or later on the thread that gives bytes
  // back. `start(false)` runs instead if Withdraw(owner) comes first. Never runs under a lock.
  void Acquire(uint64_t bytes, bool background, const void* owner,
               absl::AnyInvocable<void(bool granted)> start);
  // Gives back what was granted. May run other callers' `start`.
  void Release(uint64_t bytes);
  // Ends the waiting of everything that `owner` has in the queue.
  void Withdraw(const void* owner);

  uint64_t used() const;

 private:
  struct Waiter {
    uint64_t bytes;
    const void* owner;
    absl::AnyInvocable<void(bool)> start;
  };
  bool Fits(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return used_ == 0 || (bytes <= limit_ && used_ <= limit_ - bytes);
  }
  // Starts what fits. One thread at a time: a start that ends at once, and so gives back at once,
  // does not recurse.
  void Pump();

  const uint64_t limit_;
  mutable Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Waiter> queues_[2] ABSL_GUARDED_BY(mutex_);  // normal, background
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_INFLIGHT_BUDGET_H_
