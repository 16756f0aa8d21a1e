// Runs the same work on several threads at once and times it.
#ifndef CISTERN_TOOLS_POOLBENCH_THREADS_H_
#define CISTERN_TOOLS_POOLBENCH_THREADS_H_

#include <algorithm>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tools/replay/latency_histogram.h"

namespace cistern::poolbench {

struct Work {
  double units = 0;  // bytes, or keys
  uint64_t calls = 0;
  uint64_t keys = 0;
  uint64_t leased_calls = 0;
  replay::LatencyHistogram latency;
  // Of RunThreads' answer: from the start to the last one's end. In a body's: what it does not want
  // counted in its time.
  absl::Duration elapsed = absl::ZeroDuration();
  double rate() const { return units / std::max(1e-9, absl::ToDoubleSeconds(elapsed)); }

  void Merge(const Work& other);
};

// `body(thread)` returns what it did; elapsed = the time that does not count. All threads start
// together; the time ends with the last, less the mean of what does not count. The first error
// wins.
absl::StatusOr<Work> RunThreads(uint64_t threads, Clock& clock,
                                const std::function<absl::StatusOr<Work>(uint64_t)>& body);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_THREADS_H_
