// How much hashing readers' reports of bad chunks may cause.
//
// Each report makes the store hash a chunk, up to 1 GiB for a request of a hundred bytes. One that
// was right costs nothing, however many there are: memory that rots must be found at full speed.
// One that was wrong is paid for from a bucket that fills slowly.
#ifndef CISTERN_STORE_REPORT_LIMITER_H_
#define CISTERN_STORE_REPORT_LIMITER_H_

#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace cistern::store {

// Thread-safe.
class ReportLimiter {
 public:
  struct Limits {
    int64_t bytes_per_second;
    int64_t burst_bytes;
  };
  // One peer's share, and that of all peers: 3 % of a core's time at most.
  static constexpr Limits kConnection = {.bytes_per_second = 32 << 20, .burst_bytes = 256 << 20};
  static constexpr Limits kStore = {.bytes_per_second = 256 << 20, .burst_bytes = 1 << 30};

  explicit ReportLimiter(const Limits& limits) : limits_(limits), tokens_(limits.burst_bytes) {}

  // Whether a chunk of so many bytes may be hashed now; takes them. A bucket that is not empty pays
  // for any chunk and is in debt afterwards, so that the largest can be reported at all.
  bool Admit(uint64_t bytes, MonoTime now);
  // The report was right.
  void Refund(uint64_t bytes);

 private:
  const Limits limits_;
  Mutex mutex_;
  int64_t tokens_ ABSL_GUARDED_BY(mutex_);
  MonoTime filled_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_REPORT_LIMITER_H_
