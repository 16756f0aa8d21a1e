// Runs the same work on several threads at once and times it.
#ifndef CISTERN_TOOLS_POOLBENCH_THREADS_H_
#define CISTERN_TOOLS_POOLBENCH_THREADS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern::poolbench {

struct Work {
  double units = 0;  // done by all threads
  absl::Duration elapsed;
  double rate() const { return units / std::max(1e-9, absl::ToDoubleSeconds(elapsed)); }
};

// `body(thread)` returns the units that it did. All threads start together; the time ends with
// the last. The first error wins.
absl::StatusOr<Work> RunThreads(uint64_t threads, Clock& clock,
                                const std::function<absl::StatusOr<double>(uint64_t)>& body);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_THREADS_H_
