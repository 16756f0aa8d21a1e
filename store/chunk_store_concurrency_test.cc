// Puts, gets, removals, expiry and eviction from several threads: nobody ever sees wrong bytes, and
// nothing is left over. Run under ThreadSanitizer.
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "store/chunk_store.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

// 100 keys of 101 KiB on average: more than the store holds, so that it evicts all the time.
constexpr uint64_t kKeys = 100;
constexpr int kPutSteps = 1000;

class ChunkStoreConcurrencyTest : public ChunkStoreTestBase {
 protected:
  static uint64_t LengthOf(uint64_t key) { return 4096 + key * 2000; }

  void PutSome(uint32_t seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < kPutSteps; ++step) {
      std::vector<PutItem> items;
      for (uint32_t i = 0; i < 3; ++i) {
        const uint64_t key = random() % kKeys;
        items.push_back({NameOf(key), LengthOf(key), i});
      }
      PutOptions options;
      options.batch = store_->NewBatch();
      if (step % 5 == 0) options.expiry_unix_ms = 1 + random() % 10'000;  // long past
      std::vector<PutAnswer> answers(items.size());
      const RoomNeeded room = store_->BeginPut(ns_, items, options, now_, absl::MakeSpan(answers));
      std::vector<PutSlot> slots;
      for (size_t i = 0; i < items.size(); ++i) {
        if (!answers[i].slot) continue;
        uint64_t key = 0;
        std::memcpy(&key, items[i].name.id.bytes.data(), 8);
        FillSlot(key, &answers[i].slot);
        if (random() % 10 == 0) continue;  // the client died: aborted
        slots.push_back(std::move(answers[i].slot));
      }
      std::vector<Version> versions(slots.size());
      ASSERT_TRUE(
          store_->CommitBatch(absl::MakeSpan(slots), {}, now_, absl::MakeSpan(versions)).ok());
      if (room.any()) {
        store_->EvictSelf(room.bytes, room.extent_bytes, wire::CAUSE_EVICT_SELF,
                          now_ + absl::Minutes(1));
      }
    }
  }

  void GetSome(uint32_t seed) {
    std::mt19937 random(seed);
    while (!puts_done_) {
      std::vector<ChunkName> names;
      for (int i = 0; i < 4; ++i) names.push_back(NameOf(random() % kKeys));
      std::vector<ChunkRef> refs(names.size());
      store_->AcquireMany(ns_, names, now_, absl::MakeSpan(refs));
      for (const ChunkRef& ref : refs) {
        if (!ref) continue;
        // Part digests and root cover bytes and name.
        for (uint32_t p = 0; p < ref.layout().count; ++p) {
          if (DigestOf(ref.payload().data() + ref.layout().PartBegin(p),
                       ref.layout().PartBytes(p)) != ref.part_digests()[p]) {
            ++wrong_;
          }
        }
        if (RootDigest(ref.part_digests(), ref.length(), ref.name()) != ref.root()) ++wrong_;
        ++read_;
      }
    }
  }

  void RemoveSome(uint32_t seed) {
    std::mt19937 random(seed);
    while (!puts_done_) {
      const ChunkName name = NameOf(random() % kKeys);
      switch (random() % 4) {
        case 0:
          store_->Remove(ns_, name, Version(0), wire::CAUSE_REMOVED);
          break;
        case 1:
          if (store_->ReportBad(ns_, name, Version(0)) == wire::CHUNK_DATA_LOSS) ++wrong_;
          break;
        case 2:
          store_->ExpireDue(now_, 100);
          break;
        case 3: {
          wire::SnapshotPage page;
          store_->ReadPage(0, 100, &page);
          wire::TierUsage usage;
          store_->Usage(now_, &usage);
          const RecordLog::Range range = store_->log().range();
          wire::Delta delta;
          // The oldest may be dropped between the two calls.
          (void)store_->log().Take(range.first, 1000, &delta);
          store_->log().Ack(range.next);
          break;
        }
      }
    }
  }

  std::atomic<bool> puts_done_{false};
  std::atomic<uint64_t> wrong_{0};
  std::atomic<uint64_t> read_{0};
};

TEST_F(ChunkStoreConcurrencyTest, NobodySeesWrongBytesAndNothingIsLeftOver) {
  StoreSetup setup;
  setup.options.record_log_records = 2000;
  setup.options.max_inflight_bytes = kMiB;
  Open(setup);
  std::vector<std::thread> putters;
  putters.emplace_back([this] { PutSome(1); });
  putters.emplace_back([this] { PutSome(2); });
  std::vector<std::thread> others;
  others.emplace_back([this] { GetSome(3); });
  others.emplace_back([this] { GetSome(4); });
  others.emplace_back([this] { RemoveSome(5); });
  for (std::thread& t : putters) t.join();
  puts_done_ = true;
  for (std::thread& t : others) t.join();
  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(read_, 100u);
  wire::StoreCounters counters;
  store_->FillCounters(&counters);
  EXPECT_GT(counters.put_chunks(), 500u);
  EXPECT_GT(counters.removed_by_cause(wire::CAUSE_EXPIRED), 0u);
  EXPECT_GT(counters.removed_by_cause(wire::CAUSE_EVICT_SELF), 0u);
  EXPECT_GT(counters.removed_by_cause(wire::CAUSE_REMOVED), 0u);
  RemoveAll();
  EXPECT_EQ(store_->chunk_count(), 0u);
  EXPECT_TRUE(store_->AllFree());
}

}  // namespace
}  // namespace cistern::store
