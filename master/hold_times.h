// How long a lock was held, each time: the longest, and how often how long.
#ifndef CISTERN_MASTER_HOLD_TIMES_H_
#define CISTERN_MASTER_HOLD_TIMES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "absl/time/time.h"

namespace cistern::master {

// A value; not thread-safe: the lock that it measures guards it.
struct HoldTimes {
  // by_log2[i]: holds of 2^(i-1) to 2^i - 1 nanoseconds; the last one's and longer.
  std::array<uint64_t, 36> by_log2 = {};
  absl::Duration longest = absl::ZeroDuration();
  // Of the thread's own time, without what it was not running for; zero = was not measured.
  absl::Duration longest_cpu = absl::ZeroDuration();

  void Add(absl::Duration held) {
    const auto ns = static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(held)));
    const size_t bucket = static_cast<size_t>(std::bit_width(ns));
    ++by_log2[std::min(bucket, by_log2.size() - 1)];
    longest = std::max(longest, held);
  }
  void AddCpu(absl::Duration used) { longest_cpu = std::max(longest_cpu, used); }
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_HOLD_TIMES_H_
