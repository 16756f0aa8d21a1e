#include "client/inflight_budget.h"

#include <utility>
#include <vector>

namespace cistern {

void InflightBudget::Acquire(uint64_t bytes, bool background, const void* owner,
                             absl::AnyInvocable<void(bool granted)> start) {
  {
    MutexLock lock(mutex_);
    queues_[background ? 1 : 0].push_back({bytes, owner, std::move(start)});
  }
  Pump();
}

void InflightBudget::Release(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    used_ -= bytes;
  }
  Pump();
}

void InflightBudget::Pump() {
  for (bool first = true;; first = false) {
    Waiter next;
    {
      MutexLock lock(mutex_);
      if (first) {
        if (pumping_) return;  // That thread looks again before it stops.
        pumping_ = true;
      }
      auto& queue = !queues_[0].empty() ? queues_[0] : queues_[1];
      if (queue.empty() || !Fits(queue.front().bytes)) {
        pumping_ = false;
        return;
      }
      next = std::move(queue.front());
      queue.pop_front();
      used_ += next.bytes;
    }
    next.start(true);
  }
}

void InflightBudget::Withdraw(const void* owner) {
  std::vector<Waiter> gone;
  {
    MutexLock lock(mutex_);
    for (auto& queue : queues_) {
      std::deque<Waiter> kept;
      for (Waiter& waiter : queue) {
        if (waiter.owner == owner) {
          gone.push_back(std::move(waiter));
        } else {
          kept.push_back(std::move(waiter));
        }
      }
      queue.swap(kept);
    }
  }
  for (Waiter& waiter : gone) waiter.start(false);
  Pump();  // What stood behind them may fit now.
}

uint64_t InflightBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

}  // namespace cistern
