// How much of its capacity a store holds when it is full all the time: chunks come in, and when one
// finds no room the store evicts by itself. Each workload is filled three times over, then the
// model changes (other sizes), and it is filled three times over again. In the second run chunks
// are read all the time, so that many of the oldest go back to the young end and what leaves is no
// longer what lies side by side.
//
//   bazel run -c opt //store:allocator_benchmark
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/build_info.h"
#include "base/clock.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kSegmentBytes = 1024 * kMiB;
constexpr uint64_t kFills = 3;

struct Mix {
  std::string name;
  std::vector<uint64_t> sizes;  // drawn evenly
  bool log_uniform = false;     // then any size from sizes[0] to sizes[1], even in the logarithm
};

// Share of the allocatable bytes in use, over all puts since the store first was full.
struct Share {
  double mean = 0;
  double least = 1;
};

class Simulation {
 public:
  // `reads` chunks picked at random are read for each put.
  Simulation(const std::string& folder, double reads) : reads_(reads) {
    SegmentOptions options;
    options.kind = SegmentKind::kMemfd;
    options.path = "allocator-benchmark";
    options.bytes = kSegmentBytes;
    std::vector<std::unique_ptr<Segment>> segments;
    segments.push_back(Check(Segment::Open(options, now_)));
    ChunkStoreOptions store_options;
    store_options.record_log_records = 1024;
    store_ = Check(ChunkStore::Create(store_options, std::move(segments),
                                      Check(VersionCeiling::Open({folder, PoolId()})), now_));
    NamespaceRecord record;
    record.name = "benchmark";
    record.id = DeriveNamespaceId("", record.name, "");
    ns_ = Check(store_->BindNamespace(record));
  }

  Share Fill(const Mix& mix) {
    Share share;
    double sum = 0;
    uint64_t samples = 0;
    for (uint64_t done = 0; done < kFills * kSegmentBytes;) {
      const uint64_t length = Draw(mix);
      Put(length);
      Read();
      done += length;
      if (!full_) continue;
      wire::TierUsage usage;
      store_->Usage(now_, &usage);
      const double held =
          static_cast<double>(usage.used_bytes()) / static_cast<double>(usage.capacity_bytes());
      sum += held;
      ++samples;
      share.least = std::min(share.least, held);
    }
    share.mean = samples == 0 ? 0 : sum / static_cast<double>(samples);
    return share;
  }
  uint64_t puts() const { return next_; }

 private:
  template <typename T>
  static T Check(absl::StatusOr<T> value) {
    if (!value.ok()) absl::PrintF("%s\n", std::string(value.status().message()));
    CISTERN_CHECK(value.ok());
    return *std::move(value);
  }
  static ChunkName NameOf(uint64_t n) {
    ChunkName name;
    std::memcpy(name.id.bytes.data(), &n, sizeof(n));
    return name;
  }
  uint64_t Draw(const Mix& mix) {
    if (!mix.log_uniform) return mix.sizes[random_() % mix.sizes.size()];
    std::uniform_real_distribution<double> exponent(std::log2(mix.sizes[0]),
                                                    std::log2(mix.sizes[1]));
    return static_cast<uint64_t>(std::exp2(exponent(random_)));
  }
  void Put(uint64_t length) {
    now_ += absl::Seconds(20);  // nothing counts as read just now
    const PutItem item{NameOf(next_++), length, 0};
    PutAnswer answer;
    RoomNeeded room = store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1});
    if (!answer.slot) {
      full_ = true;
      store_->EvictSelf(room.bytes, room.extent_bytes, wire::CAUSE_EVICT_SELF, now_);
      store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1});
    }
    CommitOptions options;
    options.digest_kind = wire::DIGEST_NONE;
    CISTERN_CHECK(answer.slot && store_->Commit(std::move(answer.slot), options, now_).ok());
  }
  void Read() {
    debt_ += reads_;
    for (; debt_ >= 1; debt_ -= 1) {
      // Among those put lately, of which most are still there.
      const uint64_t back = random_() % std::max<uint64_t>(1, store_->chunk_count());
      (void)store_->Acquire(ns_, NameOf(next_ - 1 - std::min(back, next_ - 1)), now_);
    }
  }

  const double reads_;
  double debt_ = 0;
  std::mt19937 random_{1};
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::unique_ptr<ChunkStore> store_;
  NamespaceIndex ns_;
  uint64_t next_ = 0;
  bool full_ = false;
};

int Main() {
  const Mix one_size = {"64 KiB", {64 * kKiB}};
  const Mix other_size = {"80 KiB", {80 * kKiB}};
  const Mix few_sizes = {"three sizes (144, 288, 1,152 KiB)",
                         {144 * kKiB, 288 * kKiB, 1152 * kKiB}};
  const Mix few_other = {"three others (100, 500, 2,000 KiB)",
                         {100 * kKiB, 500 * kKiB, 2000 * kKiB}};
  const Mix large = {"2 and 4 MiB", {2 * kMiB, 4 * kMiB}};
  const Mix mixed = {"mixed, 4 KiB to 16 MiB", {4 * kKiB, 16 * kMiB}, true};
  Mix short_tail = {"512 KiB, one in ten shorter", {}};
  for (int i = 0; i < 90; ++i) short_tail.sizes.push_back(512 * kKiB);
  for (uint64_t i = 1; i <= 10; ++i) short_tail.sizes.push_back(i * 48 * kKiB);
  const std::pair<Mix, Mix> cases[] = {
      {one_size, other_size}, {few_sizes, few_other}, {large, few_sizes}, {mixed, mixed},
      {mixed, few_sizes},     {few_sizes, mixed},     {short_tail, large}};

  absl::PrintF("share of a %d MiB segment held by a full store; commit %s\n", kSegmentBytes / kMiB,
               std::string(CommitId()));
#ifndef __OPTIMIZE__
  absl::PrintF("WARNING: not optimised; the times mean nothing\n");
#endif
  std::string folder = (std::filesystem::temp_directory_path() / "cistern.XXXXXX").string();
  CISTERN_CHECK(mkdtemp(folder.data()) != nullptr);
  for (const double reads : {0.0, 0.5}) {
    absl::PrintF("\n%.1f reads for each put\n\n", reads);
    absl::PrintF("| sizes | mean | least | after the change to | mean | least | us/put |\n");
    absl::PrintF("|---|---|---|---|---|---|---|\n");
    for (const auto& [before, after] : cases) {
      Simulation simulation(folder, reads);
      const MonoTime start = Clock::Real().Mono();
      const Share first = simulation.Fill(before);
      const Share second = simulation.Fill(after);
      const double us = absl::ToDoubleMicroseconds(Clock::Real().Mono() - start);
      absl::PrintF("| %s | %.3f | %.3f | %s | %.3f | %.3f | %.1f |\n", before.name, first.mean,
                   first.least, after.name, second.mean, second.least,
                   us / static_cast<double>(simulation.puts()));
    }
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace cistern::store

int main() { return cistern::store::Main(); }
