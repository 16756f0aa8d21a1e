#include "tools/poolbench/rate_windows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace cistern::poolbench {

void RateWindows::Add(absl::Duration begin, absl::Duration end, double units) {
  const double first = absl::FDivDuration(begin, window_);
  const double last = std::max(absl::FDivDuration(end, window_), first + 1e-9);
  for (double at = first; at < last;) {
    const auto window = static_cast<size_t>(at);
    const double until = std::min(last, static_cast<double>(window + 1));
    if (units_.size() <= window) units_.resize(window + 1);
    units_[window] += units * (until - at) / (last - first);
    at = until;
  }
}

std::vector<double> RateWindows::Rates(absl::Duration end) const {
  std::vector<double> rates;
  const auto whole =
      static_cast<size_t>(std::max(0.0, std::floor(absl::FDivDuration(end, window_))));
  for (size_t i = 0; i < whole; ++i) {
    rates.push_back((i < units_.size() ? units_[i] : 0) / absl::ToDoubleSeconds(window_));
  }
  return rates;
}

}  // namespace cistern::poolbench
