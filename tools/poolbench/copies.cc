// The limits of memory: a copy, and a copy that is digested.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "tools/poolbench/limits.h"
#include "tools/poolbench/threads.h"

namespace cistern::poolbench {
namespace {

constexpr size_t kStretchBytes = 64 << 10;
constexpr size_t kPartBytes = 1 << 20;

class CopyMeasurement final : public Measurement {
 public:
  CopyMeasurement(uint64_t bytes, bool digest, uint64_t threads, Clock& clock)
      : digest_(digest), threads_(threads), share_(bytes / threads), clock_(clock) {
    from_.assign(share_ * threads_, 1);
    to_.assign(share_ * threads_, 2);
  }

  absl::StatusOr<Round> Run(absl::Duration time) override {
    absl::StatusOr<Work> work = RunThreads(threads_, clock_, [&](uint64_t t) {
      return absl::StatusOr<Work>(CopyUntil(t, clock_.Mono() + time));
    });
    if (!work.ok()) return work.status();
    Round round;
    round.rate = work->rate();
    return round;
  }

 private:
  Work CopyUntil(uint64_t thread, MonoTime end) {
    const uint8_t* const from = from_.data() + thread * share_;
    uint8_t* const to = to_.data() + thread * share_;
    DigestStream part;
    uint64_t sum = 0;
    Work work;
    for (size_t at = 0; clock_.Mono() < end;) {
      for (const size_t part_end = at + kPartBytes; at < part_end; at += kStretchBytes) {
        std::memcpy(to + at, from + at, kStretchBytes);
        if (digest_) part.Update(to + at, kStretchBytes);
      }
      if (digest_) sum ^= part.Finish();
      part.Reset();
      work.units += static_cast<double>(kPartBytes);
      if (at == share_) at = 0;
    }
    // Looked at, so that no compiler leaves the work out.
    sink_.fetch_xor(sum ^ to[share_ / 2], std::memory_order_relaxed);
    return work;
  }

  const bool digest_;
  const uint64_t threads_;
  const size_t share_;
  Clock& clock_;
  std::vector<uint8_t> from_;
  std::vector<uint8_t> to_;
  std::atomic<uint64_t> sink_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeCopy(uint64_t bytes, bool digest, uint64_t threads,
                                                      Clock& clock) {
  const uint64_t parts_per_thread = std::max<uint64_t>(1, bytes / kPartBytes / threads);
  return std::make_unique<CopyMeasurement>(parts_per_thread * threads * kPartBytes, digest, threads,
                                           clock);
}

}  // namespace cistern::poolbench
