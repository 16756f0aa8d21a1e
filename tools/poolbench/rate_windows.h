// A rate over time, in windows of one length.
#ifndef CISTERN_TOOLS_POOLBENCH_RATE_WINDOWS_H_
#define CISTERN_TOOLS_POOLBENCH_RATE_WINDOWS_H_

#include <vector>

#include "absl/time/time.h"

namespace cistern::poolbench {

// A value type; not thread-safe.
class RateWindows {
 public:
  // `window` is more than zero.
  explicit RateWindows(absl::Duration window) : window_(window) {}

  // `units` were done evenly over [begin, end), times since the start; calls may overlap.
  void Add(absl::Duration begin, absl::Duration end, double units);

  // Units a second of each window that lies wholly before `end`.
  std::vector<double> Rates(absl::Duration end) const;

 private:
  const absl::Duration window_;
  std::vector<double> units_;
};

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_RATE_WINDOWS_H_
