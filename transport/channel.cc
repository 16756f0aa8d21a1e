#include "transport/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "base/status.h"
#include "transport/driver.h"
#include "transport/group_state.h"

namespace cistern::transport {

bool NeverSent(const absl::Status& status) { return status.GetPayload(kNeverSentUrl).has_value(); }

CallGroup::CallGroup() : state_(std::make_shared<GroupState>(nullptr)) {}
CallGroup::CallGroup(absl::AnyInvocable<void()> on_idle)
    : state_(std::make_shared<GroupState>(std::move(on_idle))) {}
CallGroup::~CallGroup() { CISTERN_CHECK(state_->pending() == 0); }
int CallGroup::pending() const { return state_->pending(); }
void CallGroup::Cancel() { state_->Cancel(); }
void CallGroup::WakeWaiters() { state_->WakeWaiters(); }

void GroupState::Begin(const std::shared_ptr<Driver>& driver) {
  MutexLock lock(mutex_);
  pending_.store(pending_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  for (Entry& entry : entries_) {
    if (entry.driver == driver) {
      ++entry.calls;
      return;
    }
  }
  entries_.push_back({driver, 1});
  ++version_;
  for (Waiter* waiter : waiters_) waiter->Wake();
}

void GroupState::End(Driver* driver) {
  bool idle = false;
  std::shared_ptr<Driver> unused;  // the last reference must not die under the lock
  {
    MutexLock lock(mutex_);
    const auto it = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& e) { return e.driver.get() == driver; });
    CISTERN_CHECK(it != entries_.end());
    if (--it->calls == 0) {
      unused = std::move(it->driver);
      entries_.erase(it);
      ++version_;
    }
    const int left = pending_.load(std::memory_order_relaxed) - 1;
    pending_.store(left, std::memory_order_release);
    idle = left == 0;
    if (idle) {
      for (Waiter* waiter : waiters_) waiter->Wake();
    }
  }
  if (idle && on_idle_ != nullptr) on_idle_();
}

void GroupState::Cancel() {
  cancels_.fetch_add(1, std::memory_order_acq_rel);  // before the look at who has calls
  std::vector<std::shared_ptr<Driver>> drivers;
  uint64_t version = 0;
  Drivers(&version, &drivers);
  for (const auto& driver : drivers) driver->CancelGroup(this);
}

void GroupState::WakeWaiters() {
  MutexLock lock(mutex_);
  for (Waiter* waiter : waiters_) waiter->Wake();
}

void GroupState::AddWaiter(Waiter* waiter) {
  MutexLock lock(mutex_);
  waiters_.push_back(waiter);
}

void GroupState::RemoveWaiter(Waiter* waiter) {
  MutexLock lock(mutex_);
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), waiter), waiters_.end());
}

void GroupState::Drivers(uint64_t* version, std::vector<std::shared_ptr<Driver>>* drivers) const {
  MutexLock lock(mutex_);
  if (*version == version_) return;
  *version = version_;
  drivers->clear();
  for (const Entry& entry : entries_) drivers->push_back(entry.driver);
}

}  // namespace cistern::transport
