// Several segments, and segments that come and go.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/columns.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/chunk_store.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

using testing::HasSubstr;

class ChunkStoreSegmentsTest : public ChunkStoreTestBase {
 protected:
  void OpenWith(std::vector<uint64_t> segment_bytes) {
    StoreSetup setup;
    setup.segment_bytes = std::move(segment_bytes);
    Open(setup);
  }
  std::unique_ptr<Segment> NewSegment(const std::string& name, uint64_t bytes = 8 * kMiB) {
    SegmentOptions options;
    options.kind = SegmentKind::kMemfd;
    options.path = name;
    options.bytes = bytes;
    options.expected_chunk_bytes = 4096;
    options.pool_id = TestPool();
    auto segment = Segment::Open(options, now_);
    EXPECT_TRUE(segment.ok()) << segment.status();
    return *std::move(segment);
  }
  std::vector<wire::SegmentInfo> Infos() const {
    std::vector<wire::SegmentInfo> infos;
    store_->SegmentInfos(&infos);
    return infos;
  }
  SegmentId IdOf(size_t i) const { return SegmentId::FromBytes(Infos().at(i).segment_id().data()); }
  wire::TierUsage Usage() const {
    wire::TierUsage usage;
    store_->Usage(now_, &usage);
    return usage;
  }
  uint64_t FreeOf(size_t i) const { return Infos().at(i).free_bytes(); }
  // Slices until nothing more goes at once.
  ChunkStore::Drained Drain(const SegmentId& id) {
    ChunkStore::Drained sum;
    while (!sum.pass_done) {
      const auto slice = store_->DrainSlice(id);
      EXPECT_TRUE(slice.ok()) << slice.status();
      if (!slice.ok()) break;
      sum.chunks += slice->chunks;
      sum.bytes += slice->bytes;
      sum.held = slice->held;
      sum.pass_done = slice->pass_done;
    }
    return sum;
  }
  // Causes of the records behind those that existed before.
  std::multiset<int> CausesFrom(uint64_t seq) {
    wire::Delta delta;
    std::multiset<int> causes;
    const auto taken = store_->log().Take(seq, 100'000, &delta);
    EXPECT_TRUE(taken.ok());
    const auto column = Column<uint8_t>::Parse(delta.causes(), *taken, "causes", true, true);
    for (size_t i = 0; i < *taken; ++i) causes.insert((*column)[i]);
    return causes;
  }
};

TEST_F(ChunkStoreSegmentsTest, PutsSpreadOverSegmentsByFreeBytes) {
  OpenWith({8 * kMiB, 8 * kMiB, 16 * kMiB});
  // 24 x 512 KiB: the large one is ahead by 8 MiB = 16 chunks; the other 8 go round.
  for (uint64_t n = 0; n < 24; ++n) ASSERT_NE(Put(n, 512 << 10), Version(0));
  const auto infos = Infos();
  std::vector<uint64_t> used;
  for (const auto& info : infos) used.push_back(info.allocatable_bytes() - info.free_bytes());
  EXPECT_NEAR(static_cast<double>(used[0]), 1.5 * kMiB, 0.6 * kMiB);
  EXPECT_NEAR(static_cast<double>(used[1]), 1.5 * kMiB, 0.6 * kMiB);
  EXPECT_NEAR(static_cast<double>(used[2]), 9.0 * kMiB, 1.1 * kMiB);
  EXPECT_EQ(used[0] + used[1] + used[2], Usage().used_bytes());
}

TEST_F(ChunkStoreSegmentsTest, LargestFreeExtentIsTheMaximumAndLargeChunksGoWhereTheyFit) {
  OpenWith({8 * kMiB, 16 * kMiB});
  const auto infos = Infos();
  EXPECT_EQ(Usage().largest_free_extent_bytes(),
            std::max(infos[0].largest_free_extent_bytes(), infos[1].largest_free_extent_bytes()));
  EXPECT_GT(Usage().largest_free_extent_bytes(), 12 * kMiB);
  EXPECT_EQ(Usage().capacity_bytes(), infos[0].allocatable_bytes() + infos[1].allocatable_bytes());
  // Two of 9 MiB: the second fits nowhere, though 14 MiB are free.
  EXPECT_NE(Put(1, 9 * kMiB), Version(0));
  EXPECT_EQ(Begin(2, 9 * kMiB).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  // Never anywhere: not worth waiting for.
  EXPECT_EQ(Begin(3, 20 * kMiB).status, wire::CHUNK_INVALID_ARGUMENT);
}

TEST_F(ChunkStoreSegmentsTest, FullHeaderTableOfOneSegmentSendsPutsToTheOthers) {
  StoreSetup setup;
  setup.segment_bytes = {8 * kMiB, 8 * kMiB};
  setup.expected_chunk_bytes = kMiB;  // 8 headers each
  Open(setup);
  for (uint64_t n = 0; n < 16; ++n) ASSERT_NE(Put(n, 4096), Version(0)) << n;
  EXPECT_EQ(Begin(99, 4096).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(room_.headers);
}

TEST_F(ChunkStoreSegmentsTest, AddedSegmentTakesPutsAndCountsAtOnce) {
  OpenWith({8 * kMiB});
  uint64_t n = 0;
  while (Put(n, 256 << 10) != Version(0)) ++n;
  const uint64_t before = Usage().capacity_bytes();
  ASSERT_TRUE(store_->AddSegment(NewSegment("second", 16 * kMiB)).ok());
  EXPECT_EQ(Usage().capacity_bytes(), before + Infos()[1].allocatable_bytes());
  const uint64_t first = n;
  while (Put(n, 256 << 10) != Version(0)) ++n;
  EXPECT_GE(n - first, 60u);
  for (uint64_t i = 0; i < n; ++i) EXPECT_TRUE(HasBytes(i, 256 << 10)) << i;
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreSegmentsTest, TableGrowsManifoldAndKeepsEveryChunk) {
  StoreSetup setup;
  setup.expected_chunk_bytes = 256 << 10;  // 32 headers; the added ones have 2,048 each
  Open(setup);
  for (uint64_t n = 0; n < 30; ++n) ASSERT_NE(Put(n, 4096), Version(0));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(store_->AddSegment(NewSegment("more", 8 * kMiB)).ok());
    for (uint64_t n = 0; n < 300; ++n) {
      ASSERT_NE(Put(1000u * static_cast<uint64_t>(i + 1) + n, 4096), Version(0));
    }
  }
  EXPECT_EQ(store_->chunk_count(), 30u + 1500u);
  for (uint64_t n = 0; n < 30; ++n) EXPECT_TRUE(HasBytes(n, 4096));
  for (uint64_t n = 5000; n < 5300; ++n) EXPECT_TRUE(HasBytes(n, 4096));
  // Every one is in a snapshot once.
  std::optional<uint64_t> cursor = 0;
  size_t seen = 0;
  while (cursor.has_value()) {
    wire::SnapshotPage page;
    cursor = store_->ReadPage(*cursor, 100, &page);
    seen += page.records().ids().size() / KeyId::kBytes;
  }
  EXPECT_EQ(seen, 1530u);
}

TEST_F(ChunkStoreSegmentsTest, SegmentWithContentOrTwiceIsRefused) {
  OpenWith({8 * kMiB});
  SegmentOptions options;
  options.path = dir_ / "file";
  options.bytes = 8 * kMiB;
  options.pool_id = TestPool();
  ASSERT_OK(Segment::Open(options, now_));
  ASSERT_OK_AND_ASSIGN(auto attached, Segment::Open(options, now_));
  EXPECT_THAT(store_->AddSegment(std::move(attached)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("older segment")));
  EXPECT_EQ(Infos().size(), 1u);
}

TEST_F(ChunkStoreSegmentsTest, CopiedSegmentFileIsRefused) {
  StoreSetup setup;
  setup.kind = SegmentKind::kFile;
  setup.segment_bytes = {8 * kMiB, 8 * kMiB};
  Open(setup);
  store_.reset();
  WriteFile(dir_ / "dram-1", ReadFile(dir_ / "dram-0"), 0600);
  EXPECT_THAT(OpenStore(dir_, setup),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("same id")));
}

TEST_F(ChunkStoreSegmentsTest, UnmountEvictsWithItsOwnCauseAndGivesTheSegmentUp) {
  OpenWith({8 * kMiB, 8 * kMiB});
  for (uint64_t n = 0; n < 20; ++n) Put(n, 256 << 10);
  const SegmentId id = IdOf(1);
  const uint32_t there = static_cast<uint32_t>(Infos()[1].headers_used());
  ASSERT_GT(there, 5u);
  const uint64_t seq = store_->log().range().next;
  EXPECT_THAT(store_->TakeSegment(id), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_TRUE(store_->BeginUnmount(id).ok());
  EXPECT_TRUE(Infos()[1].unmounting());
  const ChunkStore::Drained drained = Drain(id);
  EXPECT_EQ(drained.chunks, there);
  EXPECT_EQ(drained.bytes, uint64_t{there} * (256 << 10));
  EXPECT_EQ(drained.held, 0u);
  // No put goes there, though it has the most free bytes by now.
  Put(100, 256 << 10);
  EXPECT_EQ(Infos()[1].headers_used(), 0u);
  std::multiset<int> causes = CausesFrom(seq);
  EXPECT_EQ(causes.count(wire::CAUSE_UNMOUNTED), there);
  EXPECT_EQ(causes.size(), there + 1u);
  ASSERT_OK(store_->TakeSegment(id));
  EXPECT_EQ(Infos().size(), 1u);
  EXPECT_EQ(store_->chunk_count(), 20u - there + 1u);
  EXPECT_EQ(Usage().capacity_bytes(), Infos()[0].allocatable_bytes());
  EXPECT_THAT(store_->DrainSlice(id), StatusIs(absl::StatusCode::kNotFound));
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreSegmentsTest, HeldChunksGoWhenTheirHoldersDo) {
  OpenWith({8 * kMiB, 16 * kMiB});  // all goes to the second, which has more free
  Put(1, 4096);
  auto reader = store_->Acquire(ns_, NameOf(1), now_);
  PutAnswer writing = Begin(2, 8192);
  FillSlot(2, &writing.slot);
  const SegmentId id = IdOf(1);
  ASSERT_EQ(Infos()[1].headers_used(), 2u);
  ASSERT_TRUE(store_->BeginUnmount(id).ok());
  EXPECT_EQ(Drain(id).held, 2u);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(std::string(reader.payload().data(), 4096), PatternBytes(1, 4096));
  // A put that was under way is acknowledged, and evicted like the others.
  ASSERT_OK(store_->Commit(std::move(writing.slot), {}, now_));
  EXPECT_TRUE(Has(2));
  EXPECT_EQ(Drain(id).held, 1u);
  EXPECT_FALSE(Has(2));
  reader.Release();
  EXPECT_EQ(Drain(id).held, 0u);
  EXPECT_OK(store_->TakeSegment(id));
}

TEST_F(ChunkStoreSegmentsTest, UsageShrinksWithWhatAnUnmountStillHolds) {
  OpenWith({8 * kMiB, 16 * kMiB});
  for (uint64_t n = 0; n < 12; ++n) Put(n, 512 << 10);
  const uint64_t first = Infos()[0].allocatable_bytes();
  const uint64_t held = Infos()[1].allocatable_bytes() - Infos()[1].free_bytes();
  const uint64_t used = Usage().used_bytes();
  ASSERT_TRUE(store_->BeginUnmount(IdOf(1)).ok());
  EXPECT_EQ(Usage().used_bytes(), used);
  EXPECT_EQ(Usage().capacity_bytes(), first + held);
  Drain(IdOf(1));
  EXPECT_EQ(Usage().capacity_bytes(), first);
  EXPECT_LE(Usage().used_bytes(), first);
}

TEST_F(ChunkStoreSegmentsTest, LastSegmentStays) {
  OpenWith({8 * kMiB, 8 * kMiB});
  ASSERT_TRUE(store_->BeginUnmount(IdOf(0)).ok());
  EXPECT_TRUE(store_->BeginUnmount(IdOf(0)).ok()) << "asked twice";
  EXPECT_THAT(store_->BeginUnmount(IdOf(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("last segment")));
  EXPECT_THAT(store_->BeginUnmount(SegmentId()), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_TRUE(store_->CancelUnmount(IdOf(0)).ok());
  EXPECT_THAT(store_->DrainSlice(IdOf(0)), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(store_->BeginUnmount(IdOf(1)).ok());
}

TEST_F(ChunkStoreSegmentsTest, SelfEvictionMakesRoomWherePutsGo) {
  OpenWith({8 * kMiB, 16 * kMiB});
  uint64_t n = 0;
  while (Put(n, 512 << 10) != Version(0)) ++n;
  ASSERT_TRUE(store_->BeginUnmount(IdOf(1)).ok());
  const uint64_t free_before = FreeOf(0);
  const EvictResult freed = store_->EvictSelf(kMiB, 0, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_TRUE(freed.satisfied);
  EXPECT_GE(FreeOf(0), free_before + kMiB);
  EXPECT_EQ(Infos()[1].headers_used(), n - Infos()[0].headers_used() - freed.chunks);
}

TEST_F(ChunkStoreSegmentsTest, NumbersAndMemoryOfUnmountedSegmentsAreUsedAgain) {
  OpenWith({8 * kMiB});
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(store_->AddSegment(NewSegment("guest", 16 * kMiB)).ok());
    for (uint64_t n = 0; n < 20; ++n) Put(1000 + n, 100'000);
    const SegmentId id = IdOf(1);
    ASSERT_TRUE(store_->BeginUnmount(id).ok());
    Drain(id);
    ASSERT_OK(store_->TakeSegment(id));
  }
  // 2,048 and 4,096 headers: a walk over all entry numbers is as long as with one guest.
  std::optional<uint64_t> cursor = 0;
  int pages = 0;
  while (cursor.has_value()) {
    wire::SnapshotPage page;
    cursor = store_->ReadPage(*cursor, 1, &page);
    ++pages;
  }
  EXPECT_EQ(pages, 1) << "of 65,536 numbers each";
  ASSERT_TRUE(store_->AddSegment(NewSegment("guest", 8 * kMiB)).ok());
  EXPECT_NE(Put(7, 4096), Version(0));
  EXPECT_TRUE(HasBytes(7, 4096));
}

TEST_F(ChunkStoreSegmentsTest, TooManySegmentsAreRefused) {
  OpenWith({8 * kMiB});
  for (size_t i = 1; i < ChunkStore::kMaxSegments; ++i) {
    ASSERT_TRUE(store_->AddSegment(NewSegment("more")).ok()) << i;
  }
  EXPECT_THAT(store_->AddSegment(NewSegment("more")),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("64 segments")));
}

TEST_F(ChunkStoreSegmentsTest, ExpiriesAndNamespacesOfAnUnmountedSegmentLeaveNothing) {
  OpenWith({8 * kMiB, 16 * kMiB});
  PutOptions soon;
  soon.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_)) + 10'000;
  for (uint64_t n = 0; n < 10; ++n) Put(n, 4096, soon);
  const SegmentId id = IdOf(1);
  ASSERT_TRUE(store_->BeginUnmount(id).ok());
  Drain(id);
  ASSERT_OK(store_->TakeSegment(id));
  now_ += absl::Seconds(60);
  store_->ExpireDue(now_, 1000);
  EXPECT_NE(Put(3, 4096), Version(0));
  EXPECT_EQ(store_->DropNamespace(TestNamespace("model").id), 1u);
  EXPECT_TRUE(store_->AllFree());
}

// Readers and writers at work while segments come and go; every get brings the right bytes.
TEST_F(ChunkStoreSegmentsTest, MountsAndUnmountsUnderLoad) {
  OpenWith({16 * kMiB});
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> got{0};
  const auto work = [&](uint64_t seed) {
    for (uint64_t i = 0; !stop; ++i) {
      const uint64_t n = (seed * 7919 + i * 104729) % 400;
      const PutItem item{NameOf(n), 20'000, 0};
      PutAnswer answer;
      if (store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1}).bytes != 0) {
        store_->EvictSelf(40'960, 0, wire::CAUSE_EVICT_SELF, now_);
      }
      if (answer.slot) {
        FillSlot(n, &answer.slot);
        EXPECT_TRUE(store_->Commit(std::move(answer.slot), {}, now_).ok());
      }
      const uint64_t other = (n * 31 + i) % 400;
      const ChunkRef ref = store_->Acquire(ns_, NameOf(other), now_);
      if (!ref) continue;
      EXPECT_EQ(std::string(ref.payload().data(), ref.payload().size()),
                PatternBytes(other, 20'000));
      ++got;
    }
  };
  std::thread first(work, 1);
  std::thread second(work, 2);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(store_->AddSegment(NewSegment("guest", 16 * kMiB)).ok());
    const uint64_t before = got;
    while (got < before + 20) std::this_thread::yield();
    const SegmentId id = IdOf(1);
    EXPECT_TRUE(store_->BeginUnmount(id).ok());
    while (Drain(id).held != 0) std::this_thread::yield();
    EXPECT_TRUE(store_->TakeSegment(id).ok());
  }
  stop = true;
  first.join();
  second.join();
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

}  // namespace
}  // namespace cistern::store
