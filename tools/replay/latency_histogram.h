// Latencies in buckets whose width grows with the value: 64 to each power of two, so that a
// percentile is at most 1.6 % above the true one. Mergeable across processes.
#ifndef CISTERN_TOOLS_REPLAY_LATENCY_HISTOGRAM_H_
#define CISTERN_TOOLS_REPLAY_LATENCY_HISTOGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cistern::replay {

// A value type; not thread-safe.
class LatencyHistogram {
 public:
  LatencyHistogram();

  // Negative durations count as zero, those above 18 minutes as 18 minutes.
  void Record(absl::Duration latency);
  void Merge(const LatencyHistogram& other);

  uint64_t count() const { return count_; }
  absl::Duration sum() const { return absl::Nanoseconds(sum_ns_); }
  absl::Duration max() const { return absl::Nanoseconds(max_ns_); }
  // The latency that a share `p` (0 to 1) of the records do not exceed; zero without records.
  absl::Duration Percentile(double p) const;

  // "count sum_ns max_ns bucket:count ...": one line, for another process to merge.
  std::string Serialize() const;
  static absl::StatusOr<LatencyHistogram> Parse(std::string_view text);

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  int64_t sum_ns_ = 0;
  int64_t max_ns_ = 0;
};

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_LATENCY_HISTOGRAM_H_
