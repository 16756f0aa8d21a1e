// The shared inside of a CallGroup: which calls are pending where, and who waits for them.
#ifndef CISTERN_TRANSPORT_GROUP_STATE_H_
#define CISTERN_TRANSPORT_GROUP_STATE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/mutex.h"
#include "transport/channel.h"
#include "transport/waiter.h"

namespace cistern::transport {

class Driver;

// Used by the wires (Begin, End) and IoContext (the rest). Thread-safe. Kept alive by the group and
// by every pending call, so that a group may be destroyed the moment its last call has ended.
class GroupState {
 public:
  explicit GroupState(absl::AnyInvocable<void()> on_idle) : on_idle_(std::move(on_idle)) {}
  static const std::shared_ptr<GroupState>& Of(const CallGroup& group) { return group.state_; }

  // A call of this group was given to `driver`.
  void Begin(const std::shared_ptr<Driver>& driver);
  // It has ended and its OnDone has returned. Runs on_idle if it was the last.
  void End(Driver* driver);
  // The I/O thread drives its calls while nobody waits.
  bool background() const { return on_idle_ != nullptr; }
  int pending() const { return pending_.load(std::memory_order_acquire); }
  void Cancel();
  // How often Cancel() was called: for who passes a call on from one channel to another, and would
  // otherwise take it past a cancel that came while neither had it.
  uint64_t cancels() const { return cancels_.load(std::memory_order_acquire); }

  void WakeWaiters();
  void AddWaiter(Waiter* waiter);
  void RemoveWaiter(Waiter* waiter);
  // Replaces *drivers if the set changed since *version (start with 0).
  void Drivers(uint64_t* version, std::vector<std::shared_ptr<Driver>>* drivers) const;

 private:
  struct Entry {
    std::shared_ptr<Driver> driver;
    int calls;
  };
  mutable Mutex mutex_;
  std::atomic<int> pending_{0};  // written under mutex_
  std::atomic<uint64_t> cancels_{0};
  absl::AnyInvocable<void()> on_idle_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<Waiter*> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_GROUP_STATE_H_
