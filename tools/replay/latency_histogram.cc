#include "tools/replay/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/string_view.h"

namespace cistern::replay {
namespace {

constexpr int kSubBits = 6;  // 64 buckets to a power of two
constexpr int kMaxBits = 40;
constexpr int64_t kMaxNs = (int64_t{1} << kMaxBits) - 1;
constexpr size_t kBuckets = size_t{kMaxBits - kSubBits + 1} << kSubBits;

// Values below 64 have a bucket each; then each power of two is cut into 64.
size_t BucketOf(int64_t ns) {
  const auto v = static_cast<uint64_t>(ns);
  if (v < (uint64_t{1} << kSubBits)) return static_cast<size_t>(v);
  const int shift = std::bit_width(v) - 1 - kSubBits;
  return (static_cast<size_t>(shift) << kSubBits) + static_cast<size_t>(v >> shift);
}

// The greatest value in a bucket.
int64_t BucketMax(size_t bucket) {
  if (bucket < (size_t{1} << kSubBits)) return static_cast<int64_t>(bucket);
  const size_t shift = (bucket >> kSubBits) - 1;
  const uint64_t lead = (bucket & ((size_t{1} << kSubBits) - 1)) + (uint64_t{1} << kSubBits);
  return static_cast<int64_t>(((lead + 1) << shift) - 1);
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets, 0) {}

void LatencyHistogram::Record(absl::Duration latency) {
  const int64_t ns = std::clamp<int64_t>(absl::ToInt64Nanoseconds(latency), 0, kMaxNs);
  ++buckets_[BucketOf(ns)];
  ++count_;
  sum_ns_ += ns;
  max_ns_ = std::max(max_ns_, ns);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ns_ += other.sum_ns_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

absl::Duration LatencyHistogram::Percentile(double p) const {
  if (count_ == 0) return absl::ZeroDuration();
  const auto rank = std::max<uint64_t>(
      1, static_cast<uint64_t>(std::ceil(std::clamp(p, 0.0, 1.0) * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return absl::Nanoseconds(std::min(BucketMax(i), max_ns_));
  }
  return max();
}

std::string LatencyHistogram::Serialize() const {
  std::string out = absl::StrCat(count_, " ", sum_ns_, " ", max_ns_);
  for (size_t i = 0; i < kBuckets; ++i) {
    if (buckets_[i] > 0) absl::StrAppend(&out, " ", i, ":", buckets_[i]);
  }
  return out;
}

absl::StatusOr<LatencyHistogram> LatencyHistogram::Parse(std::string_view text) {
  const auto bad = [] { return absl::InvalidArgumentError("not a serialised histogram"); };
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
  LatencyHistogram out;
  if (words.size() < 3 || !absl::SimpleAtoi(words[0], &out.count_) ||
      !absl::SimpleAtoi(words[1], &out.sum_ns_) || !absl::SimpleAtoi(words[2], &out.max_ns_)) {
    return bad();
  }
  uint64_t counted = 0;
  for (size_t i = 3; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(words[i], absl::MaxSplits(':', 1));
    uint64_t bucket = 0;
    uint64_t count = 0;
    if (!absl::SimpleAtoi(pair.first, &bucket) || !absl::SimpleAtoi(pair.second, &count) ||
        bucket >= kBuckets) {
      return bad();
    }
    out.buckets_[bucket] += count;
    counted += count;
  }
  if (counted != out.count_ || out.max_ns_ < 0 || out.sum_ns_ < 0) return bad();
  return out;
}

}  // namespace cistern::replay
