// Whether a thread that sleeps until there is work hangs in it.
#ifndef CISTERN_BASE_BUSY_WATCH_H_
#define CISTERN_BASE_BUSY_WATCH_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern {

// The thread says when a piece of work begins and ends; whoever watches asks how long the one in
// hand has lasted. One thread works; any may ask.
class BusyWatch {
 public:
  void Begin(MonoTime now) {
    since_ns_.store(absl::ToInt64Nanoseconds(now.since_origin), std::memory_order_relaxed);
  }
  void End() { since_ns_.store(kIdle, std::memory_order_relaxed); }
  // Zero while it sleeps.
  absl::Duration BusyFor(MonoTime now) const {
    const int64_t since = since_ns_.load(std::memory_order_relaxed);
    return since == kIdle ? absl::ZeroDuration() : now.since_origin - absl::Nanoseconds(since);
  }

 private:
  static constexpr int64_t kIdle = -1;
  std::atomic<int64_t> since_ns_{kIdle};
};

}  // namespace cistern

#endif  // CISTERN_BASE_BUSY_WATCH_H_
