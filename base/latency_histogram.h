// How long calls took, counted into fixed classes: cheap enough for every call.
#ifndef CISTERN_BASE_LATENCY_HISTOGRAM_H_
#define CISTERN_BASE_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cistern {

// Upper bounds of the classes; what is slower than the last goes into one class more. A loopback
// lookup takes tens of microseconds, a call that waits for room a quarter of a second, a deadline
// is seconds.
inline constexpr std::array<absl::Duration, 16> LatencyBounds() {
  return {absl::Microseconds(50),  absl::Microseconds(100), absl::Microseconds(250),
          absl::Microseconds(500), absl::Milliseconds(1),   absl::Microseconds(2500),
          absl::Milliseconds(5),   absl::Milliseconds(10),  absl::Milliseconds(25),
          absl::Milliseconds(50),  absl::Milliseconds(100), absl::Milliseconds(250),
          absl::Milliseconds(500), absl::Seconds(1),        absl::Milliseconds(2500),
          absl::Seconds(10)};
}

// Thread-safe: relaxed atomics, no locks. What is read while others count may be some calls apart
// between the classes and the sum.
class LatencyHistogram {
 public:
  static constexpr size_t kClasses = LatencyBounds().size() + 1;

  struct Counts {
    std::array<uint64_t, kClasses> by_class = {};  // not cumulative
    absl::Duration sum;
    uint64_t total() const {
      uint64_t n = 0;
      for (const uint64_t c : by_class) n += c;
      return n;
    }
  };

  void Count(absl::Duration took) {
    const int64_t ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(took));
    // Half of the classes lie below a few milliseconds, where nearly every call ends.
    size_t c = 0;
    while (c + 1 < kClasses && ns > kBoundsNs[c]) ++c;
    classes_[c].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
  }

  Counts Read() const {
    Counts out;
    for (size_t c = 0; c < kClasses; ++c) {
      out.by_class[c] = classes_[c].load(std::memory_order_relaxed);
    }
    out.sum = absl::Nanoseconds(static_cast<int64_t>(sum_ns_.load(std::memory_order_relaxed)));
    return out;
  }

 private:
  static inline const std::array<int64_t, kClasses - 1> kBoundsNs = [] {
    std::array<int64_t, kClasses - 1> ns{};
    const auto bounds = LatencyBounds();
    for (size_t i = 0; i < ns.size(); ++i) ns[i] = absl::ToInt64Nanoseconds(bounds[i]);
    return ns;
  }();

  std::array<std::atomic<uint64_t>, kClasses> classes_ = {};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace cistern

#endif  // CISTERN_BASE_LATENCY_HISTOGRAM_H_
