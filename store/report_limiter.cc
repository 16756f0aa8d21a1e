#include "store/report_limiter.h"

#include <algorithm>

namespace cistern::store {

bool ReportLimiter::Admit(uint64_t bytes, MonoTime now) {
  MutexLock lock(mutex_);
  // An hour fills any bucket; so bounded, the product cannot overflow.
  const absl::Duration passed = std::clamp(now - filled_at_, absl::ZeroDuration(), absl::Hours(1));
  const auto earned = static_cast<int64_t>(absl::ToDoubleSeconds(passed) *
                                           static_cast<double>(limits_.bytes_per_second));
  // Less than a byte is not lost: the time stays with it.
  if (earned > 0) {
    tokens_ = std::min(limits_.burst_bytes, tokens_ + earned);
    filled_at_ = now;
  }
  if (tokens_ <= 0) return false;
  tokens_ -= static_cast<int64_t>(bytes);
  return true;
}

void ReportLimiter::Refund(uint64_t bytes) {
  MutexLock lock(mutex_);
  tokens_ = std::min(limits_.burst_bytes, tokens_ + static_cast<int64_t>(bytes));
}

}  // namespace cistern::store
