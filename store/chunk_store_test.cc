#include "store/chunk_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/columns.h"
#include "gtest/gtest.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

class ChunkStoreTest : public ChunkStoreTestBase {
 protected:
  wire::TierUsage Usage() const {
    wire::TierUsage usage;
    store_->Usage(now_, &usage);
    return usage;
  }
  wire::StoreCounters Counters() const {
    wire::StoreCounters counters;
    store_->FillCounters(&counters);
    return counters;
  }
  wire::Delta Records(uint64_t from) const {
    wire::Delta delta;
    EXPECT_TRUE(store_->log().Take(from, 4096, &delta).ok());
    return delta;
  }
};

TEST_F(ChunkStoreTest, CommittedChunkIsReadBackWithItsDescription) {
  Open();
  const Version version = Put(7, 10'000);
  ASSERT_NE(version, Version(0));
  const ChunkRef ref = store_->Acquire(ns_, NameOf(7), now_);
  ASSERT_TRUE(ref);
  EXPECT_EQ(ref.length(), 10'000u);
  EXPECT_EQ(ref.version(), version);
  EXPECT_EQ(ref.digest_kind(), wire::DIGEST_PRODUCER);
  // The default part size is the smallest power of two that holds the chunk.
  EXPECT_EQ(ref.layout().part_bytes, 16'384u);
  EXPECT_EQ(ref.layout().count, 1u);
  EXPECT_EQ(std::string(ref.payload().data(), ref.payload().size()), PatternBytes(7, 10'000));
  const std::string bytes = PatternBytes(7, 10'000);
  const PartDigest part = DigestOf(bytes.data(), bytes.size());
  ASSERT_EQ(ref.part_digests().size(), 1u);
  EXPECT_EQ(ref.part_digests()[0], part);
  EXPECT_EQ(ref.root(), RootDigest({&part, 1}, 10'000, NameOf(7)));
  EXPECT_FALSE(ref.verified());
}

TEST_F(ChunkStoreTest, PartTableOfSeveralPartsFollowsThePayload) {
  Open();
  PutOptions options;
  options.part_bytes = 4096;
  ASSERT_NE(Put(1, 12'289, options), Version(0));  // four parts, the last of one byte
  const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
  ASSERT_TRUE(ref);
  ASSERT_EQ(ref.part_digests().size(), 4u);
  const std::string bytes = PatternBytes(1, 12'289);
  EXPECT_EQ(ref.part_digests()[0], DigestOf(bytes.data(), 4096));
  EXPECT_EQ(ref.part_digests()[3], DigestOf(bytes.data() + 12'288, 1));
  // 12,289 rounded up to 12,296, and 4 x 8: 12,328 bytes, four pages of 4 KiB.
  EXPECT_EQ(ref.extent_bytes(), 16'384u);
}

TEST_F(ChunkStoreTest, SecondPutOfACommittedChunkIsPresentAndCostsNothing) {
  Open();
  Put(1, 4096);
  const uint64_t used = Usage().used_bytes();
  const PutAnswer answer = Begin(1, 4096);
  EXPECT_EQ(answer.status, wire::CHUNK_PRESENT);
  EXPECT_FALSE(answer.slot);
  EXPECT_EQ(Usage().used_bytes(), used);
  EXPECT_EQ(Counters().put_present(), 1u);
}

TEST_F(ChunkStoreTest, ChunkBeingPutIsInProgressToOthersAndAbsentToReaders) {
  Open();
  PutAnswer first = Begin(1, 4096);
  ASSERT_EQ(first.status, wire::CHUNK_OK);
  EXPECT_EQ(Begin(1, 4096).status, wire::CHUNK_IN_PROGRESS);
  EXPECT_FALSE(Has(1));
  EXPECT_FALSE(store_->Acquire(ns_, NameOf(1), now_));
  first.slot.Abort();
  EXPECT_EQ(Begin(1, 4096).status, wire::CHUNK_OK);
}

TEST_F(ChunkStoreTest, KeyTwiceInABatchIsPutOnce) {
  Open();
  PutOptions options;
  options.batch = store_->NewBatch();
  const std::vector<PutItem> items = {
      {NameOf(1), 4096, 0}, {NameOf(2), 4096, 1}, {NameOf(1), 4096, 2}};
  std::vector<PutAnswer> answers(3);
  store_->BeginPut(ns_, items, options, now_, absl::MakeSpan(answers));
  EXPECT_TRUE(answers[0].slot);
  EXPECT_TRUE(answers[1].slot);
  EXPECT_EQ(answers[2].status, wire::CHUNK_OK);
  EXPECT_FALSE(answers[2].slot);
  EXPECT_EQ(answers[2].duplicate_of, 0u);
}

TEST_F(ChunkStoreTest, AbortedPutLeavesNothing) {
  Open();
  EXPECT_TRUE(store_->AllFree());
  {
    PutAnswer answer = Begin(1, 100'000);
    ASSERT_TRUE(answer.slot);
    EXPECT_EQ(store_->inflight_bytes(), 102'400u);  // 25 pages
    EXPECT_FALSE(store_->AllFree());
  }
  EXPECT_EQ(store_->inflight_bytes(), 0u);
  EXPECT_TRUE(store_->AllFree());
  EXPECT_EQ(store_->log().range().next, 1u);
}

TEST_F(ChunkStoreTest, BatchEntersLogAndArrivalOrderLastChunkFirst) {
  Open();
  const std::vector<PutItem> items = {
      {NameOf(10), 4096, 0}, {NameOf(11), 8192, 1}, {NameOf(12), 12'288, 2}};
  std::vector<PutAnswer> answers(3);
  store_->BeginPut(ns_, items, {}, now_, absl::MakeSpan(answers));
  std::vector<PutSlot> slots(3);
  for (size_t i = 0; i < 3; ++i) {
    FillSlot(10 + i, &answers[i].slot);
    slots[i] = std::move(answers[i].slot);
  }
  std::vector<Version> versions(3);
  ASSERT_TRUE(store_->CommitBatch(absl::MakeSpan(slots), {}, now_, absl::MakeSpan(versions)).ok());
  EXPECT_EQ(versions[2], Version(1));
  EXPECT_EQ(versions[1], Version(2));
  EXPECT_EQ(versions[0], Version(3));
  const wire::Delta delta = Records(1);
  EXPECT_EQ(delta.ids(), std::string(NameOf(12).id.view()) + std::string(NameOf(11).id.view()) +
                             std::string(NameOf(10).id.view()));
  // The oldest goes first: the suffix before its prefix.
  const EvictResult evicted = store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_EQ(evicted.chunks, 1u);
  EXPECT_EQ(evicted.bytes, 12'288u);
  EXPECT_FALSE(Has(12));
  EXPECT_TRUE(Has(10));
}

TEST_F(ChunkStoreTest, RecordsSayWhatIsHeldAndWhy) {
  Open();
  const Version put = Put(5, 4096);
  ASSERT_EQ(store_->Remove(ns_, NameOf(5), put, wire::CAUSE_REMOVED), wire::CHUNK_OK);
  const wire::Delta delta = Records(1);
  EXPECT_EQ(delta.seq_first(), 1u);
  ASSERT_EQ(delta.ids().size(), 32u);
  EXPECT_EQ(delta.tiers(), std::string("\x01\x00", 2));
  EXPECT_EQ(delta.causes(), std::string("\x01\x07", 2));  // CAUSE_PUT, CAUSE_REMOVED
  EXPECT_EQ(delta.versions(), std::string("\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0", 16));
}

TEST_F(ChunkStoreTest, ReaderKeepsTheBytesOfARemovedChunk) {
  Open();
  Put(1, 4096);
  ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
  EXPECT_EQ(store_->Remove(ns_, NameOf(1), Version(0), wire::CAUSE_REMOVED), wire::CHUNK_OK);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Usage().chunk_count(), 0u);
  EXPECT_EQ(Usage().used_bytes(), 4096u);
  EXPECT_EQ(Usage().headers_used(), 1u);
  // The same key can be put again beside it, elsewhere.
  Put(1, 4096);
  EXPECT_EQ(std::string(ref.payload().data(), 4096), PatternBytes(1, 4096));
  EXPECT_EQ(Usage().used_bytes(), 8192u);
  ref.Release();
  EXPECT_EQ(Usage().used_bytes(), 4096u);
  EXPECT_EQ(Usage().headers_used(), 1u);
}

TEST_F(ChunkStoreTest, NamespaceIsComparedOnEveryAccess) {
  Open();
  Put(1, 4096);
  const NamespaceIndex other = *store_->BindNamespace(TestNamespace("other"));
  EXPECT_FALSE(store_->Acquire(other, NameOf(1), now_));
  EXPECT_FALSE(store_->Contains(other, NameOf(1), now_));
  EXPECT_EQ(store_->Remove(other, NameOf(1), Version(0), wire::CAUSE_REMOVED),
            wire::CHUNK_NOT_FOUND);
  EXPECT_EQ(store_->ReportBad(other, NameOf(1), Version(0)), wire::CHUNK_NOT_FOUND);
  const PutItem item{NameOf(1), 4096, 0};
  PutAnswer answer;
  store_->BeginPut(other, {&item, 1}, {}, now_, {&answer, 1});
  EXPECT_EQ(answer.status, wire::CHUNK_FAILED_PRECONDITION);
  EXPECT_TRUE(Has(1));
}

TEST_F(ChunkStoreTest, ShardsOfAKeyAreChunksOfTheirOwn) {
  Open();
  const std::vector<PutItem> items = {{NameOf(1, 0), 4096, 0}, {NameOf(1, 1), 4096, 1}};
  std::vector<PutAnswer> answers(2);
  store_->BeginPut(ns_, items, {}, now_, absl::MakeSpan(answers));
  FillSlot(100, &answers[0].slot);
  FillSlot(101, &answers[1].slot);
  ASSERT_TRUE(store_->Commit(std::move(answers[0].slot), {}, now_).ok());
  ASSERT_TRUE(store_->Commit(std::move(answers[1].slot), {}, now_).ok());
  const ChunkRef second = store_->Acquire(ns_, NameOf(1, 1), now_);
  ASSERT_TRUE(second);
  EXPECT_EQ(std::string(second.payload().data(), 4096), PatternBytes(101, 4096));
  EXPECT_FALSE(store_->Acquire(ns_, NameOf(1, 2), now_));
}

TEST_F(ChunkStoreTest, RemoveAndEvictOfAnotherVersionDoNothing) {
  Open();
  const Version v = Put(1, 4096);
  EXPECT_EQ(store_->Remove(ns_, NameOf(1), Version(v.value + 1), wire::CAUSE_REMOVED),
            wire::CHUNK_NOT_FOUND);
  EXPECT_FALSE(store_->Evict(NameOf(1), Version(v.value + 1), wire::CAUSE_EVICT_WATERMARK));
  EXPECT_TRUE(Has(1));
  EXPECT_TRUE(store_->Evict(NameOf(1), v, wire::CAUSE_EVICT_WATERMARK));
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Counters().removed_by_cause(wire::CAUSE_EVICT_WATERMARK), 1u);
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreTest, BadLengthsAndPartsAreRefused) {
  Open();
  EXPECT_EQ(Begin(1, 0).status, wire::CHUNK_INVALID_ARGUMENT);
  EXPECT_EQ(Begin(1, 4095).status, wire::CHUNK_INVALID_ARGUMENT);
  EXPECT_EQ(Begin(1, kMaxChunkBytes + 1).status, wire::CHUNK_INVALID_ARGUMENT);
  EXPECT_EQ(Begin(1, 16 * kMiB).status, wire::CHUNK_INVALID_ARGUMENT);  // larger than any segment
  PutOptions options;
  options.part_bytes = 5000;
  EXPECT_EQ(Begin(1, 8192, options).status, wire::CHUNK_INVALID_ARGUMENT);
  const PutItem item{NameOf(1, 5000), 4096, 0};  // shards end at 4,095
  PutAnswer answer;
  store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1});
  EXPECT_EQ(answer.status, wire::CHUNK_INVALID_ARGUMENT);
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreTest, FullStoreSaysHowMuchRoomItNeeds) {
  Open();
  uint64_t n = 0;
  while (Put(n, kMiB) != Version(0)) ++n;
  EXPECT_EQ(n, 7u);  // 8 MiB less tables
  EXPECT_EQ(room_.bytes, kMiB);
  EXPECT_EQ(room_.extent_bytes, kMiB);
  EXPECT_FALSE(room_.headers);
  const EvictResult evicted =
      store_->EvictSelf(room_.bytes, room_.extent_bytes, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_TRUE(evicted.satisfied);
  EXPECT_EQ(evicted.chunks, 1u);
  EXPECT_FALSE(Has(0));  // the first to arrive
  EXPECT_NE(Put(n, kMiB), Version(0));
}

TEST_F(ChunkStoreTest, HeadersThatRunOutBeforeBytesAreSaid) {
  StoreSetup setup;
  setup.expected_chunk_bytes = kMiB;  // eight headers
  Open(setup);
  for (uint64_t n = 0; n < 8; ++n) ASSERT_NE(Put(n, 4096), Version(0));
  EXPECT_EQ(Begin(8, 4096).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(room_.headers);
  EXPECT_TRUE(store_->EvictSelf(1, 4096, wire::CAUSE_EVICT_SELF, now_).satisfied);
  EXPECT_NE(Put(8, 4096), Version(0));
}

TEST_F(ChunkStoreTest, UncommittedBytesAreBounded) {
  StoreSetup setup;
  setup.options.max_inflight_bytes = 2 * kMiB;
  Open(setup);
  PutAnswer first = Begin(1, kMiB);
  PutAnswer second = Begin(2, kMiB);
  EXPECT_EQ(Begin(3, 4096).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  EXPECT_TRUE(room_.inflight);
  EXPECT_EQ(room_.bytes, 0u);
  first.slot.Abort();
  EXPECT_EQ(Begin(3, 4096).status, wire::CHUNK_OK);
  second.slot.Abort();
  // One chunk above the bound is let through alone.
  EXPECT_EQ(Begin(4, 3 * kMiB).status, wire::CHUNK_OK);
}

TEST_F(ChunkStoreTest, SelfEvictionSparesWhatWasReadLately) {
  Open();
  for (uint64_t n = 0; n < 4; ++n) Put(n, 4096);
  now_ += absl::Seconds(100);
  EXPECT_TRUE(HasBytes(0, 4096));
  now_ += absl::Seconds(9);
  // 0 was read 9 s ago: spared, though it is the oldest.
  EXPECT_EQ(store_->EvictSelf(3 * 4096, 0, wire::CAUSE_EVICT_SELF, now_).chunks, 3u);
  EXPECT_TRUE(Has(0));
  EXPECT_FALSE(store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_).satisfied);
  EXPECT_TRUE(Has(0));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_).satisfied);
  EXPECT_FALSE(Has(0));
}

TEST_F(ChunkStoreTest, SelfEvictionGivesWhatWasReadASecondRound) {
  Open();
  for (uint64_t n = 0; n < 3; ++n) Put(n, 4096);
  EXPECT_TRUE(HasBytes(0, 4096));
  now_ += absl::Seconds(60);
  store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_TRUE(Has(0));   // touched: back to the young end
  EXPECT_FALSE(Has(1));  // the victim
  store_->EvictSelf(4096 + 1, 0, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_FALSE(Has(2));
  EXPECT_FALSE(Has(0));  // not read again
}

TEST_F(ChunkStoreTest, SelfEvictionLeavesWhatIsBeingRead) {
  Open();
  Put(1, 4096);
  const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
  now_ += absl::Hours(1);
  EXPECT_EQ(store_->EvictSelf(1, 0, wire::CAUSE_EVICT_SELF, now_).chunks, 0u);
  EXPECT_TRUE(Has(1));
}

TEST_F(ChunkStoreTest, SelfEvictionGoesOnUntilAnExtentFits) {
  Open();
  uint64_t n = 0;
  while (Put(n, 512 << 10) != Version(0)) ++n;
  // Two neighbours of 512 KiB and whatever was left over make room for 1 MiB.
  const EvictResult result = store_->EvictSelf(1, kMiB, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_TRUE(result.satisfied);
  EXPECT_EQ(result.chunks, 2u);
  EXPECT_NE(Put(1000, kMiB), Version(0));
}

TEST_F(ChunkStoreTest, SelfEvictionMakesAHoleAroundTheOldest) {
  Open();
  constexpr uint64_t kLength = 512 << 10;
  uint64_t n = 0;
  while (Put(n, kLength) != Version(0)) ++n;
  // Every second chunk is put anew, so that no two neighbours are of like age.
  for (uint64_t odd = 1; odd < n; odd += 2) {
    store_->Remove(ns_, NameOf(odd), Version(0), wire::CAUSE_REMOVED);
    now_ += absl::Seconds(1);
    ASSERT_NE(Put(100 + odd, kLength), Version(0));
  }
  // By age alone all of 0, 2, 4, ... would go before two neighbours are free.
  const EvictResult result = store_->EvictSelf(1, 2 * kLength, wire::CAUSE_EVICT_SELF, now_);
  EXPECT_TRUE(result.satisfied);
  EXPECT_EQ(result.chunks, 2u);
  EXPECT_FALSE(Has(0));
  EXPECT_FALSE(Has(101));
  EXPECT_TRUE(Has(2));
}

TEST_F(ChunkStoreTest, HoleIsMadeBesideWhatIsBeingReadNotThroughIt) {
  Open();
  constexpr uint64_t kLength = 512 << 10;
  uint64_t n = 0;
  while (Put(n, kLength) != Version(0)) ++n;
  const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
  now_ += absl::Minutes(1);
  // 0 has 1 beside it and nothing else; 2 and 3 make the hole.
  EXPECT_TRUE(store_->EvictSelf(1, 2 * kLength, wire::CAUSE_EVICT_SELF, now_).satisfied);
  EXPECT_FALSE(Has(0));
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  EXPECT_FALSE(Has(3));
  EXPECT_TRUE(Has(4));
}

TEST_F(ChunkStoreTest, ReserveDeficitIsWhatIsMissingToOnePercentFree) {
  Open();
  EXPECT_EQ(store_->ReserveDeficit(), 0u);
  uint64_t n = 0;
  while (Put(n, 4096) != Version(0)) ++n;
  const uint64_t capacity = Usage().capacity_bytes();
  const uint64_t free = capacity - Usage().used_bytes();
  EXPECT_EQ(store_->ReserveDeficit(), capacity / 100 - free);
}

TEST_F(ChunkStoreTest, ExpiredChunksAreFreedWhenDue) {
  Open();
  PutOptions options;
  options.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_)) + 5'000;
  Put(1, 4096, options);
  Put(2, 4096);
  EXPECT_EQ(store_->NextExpiry(), now_ + absl::Seconds(5));
  EXPECT_EQ(store_->ExpireDue(now_ + absl::Seconds(4), 100), 0u);
  now_ += absl::Seconds(5);
  EXPECT_FALSE(Has(1));  // unreadable at once, even before the sweep
  EXPECT_EQ(store_->ExpireDue(now_, 100), 1u);
  EXPECT_EQ(Usage().chunk_count(), 1u);
  EXPECT_EQ(Counters().removed_by_cause(wire::CAUSE_EXPIRED), 1u);
  EXPECT_EQ(store_->NextExpiry(), absl::InfiniteFuture());
  EXPECT_TRUE(Has(2));
}

TEST_F(ChunkStoreTest, NamespaceTtlIsTheDefaultExpiry) {
  Open();
  wire::NamespaceOptions options;
  options.set_ttl_ms(60'000);
  ns_ = *store_->BindNamespace(TestNamespace("short-lived", options));
  Put(1, 4096);
  EXPECT_EQ(store_->NextExpiry(), now_ + absl::Minutes(1));
  // An expired chunk that no sweep has met yet does not stand in the way of a new put.
  now_ += absl::Minutes(2);
  EXPECT_NE(Put(1, 4096), Version(0));
  EXPECT_TRUE(Has(1));
}

TEST_F(ChunkStoreTest, SoonerOfTtlAndExpiryCounts) {
  Open();
  wire::NamespaceOptions options;
  options.set_ttl_ms(60'000);
  ns_ = *store_->BindNamespace(TestNamespace("minute", options));
  const auto at = [&](absl::Duration after) {
    PutOptions put;
    put.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_ + after));
    return put;
  };
  Put(1, 4096, at(absl::Seconds(10)));
  Put(2, 4096, at(absl::Hours(10)));
  now_ += absl::Seconds(10);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(2));
  now_ += absl::Seconds(50);
  EXPECT_FALSE(Has(2));
  // A ttl beyond all time does not come out as one in the past.
  options.set_ttl_ms(UINT64_MAX);
  ns_ = *store_->BindNamespace(TestNamespace("for ever", options));
  Put(3, 4096);
  EXPECT_TRUE(Has(3));
}

TEST_F(ChunkStoreTest, FirstOpenersOptionsStay) {
  Open();
  wire::NamespaceOptions options;
  options.set_part_bytes(8192);
  const NamespaceIndex first = *store_->BindNamespace(TestNamespace("ns", options));
  const NamespaceIndex second = *store_->BindNamespace(TestNamespace("ns"));
  EXPECT_EQ(first, second);
  EXPECT_EQ(store_->NamespaceOptionsOf(second).part_bytes(), 8192u);
  EXPECT_EQ(store_->NamespaceAt(second).info.name(), "ns");
}

TEST_F(ChunkStoreTest, NamespaceWithForeignIdIsRefused) {
  Open();
  NamespaceRecord record = TestNamespace("a");
  record.id.bytes[0] ^= 1;
  EXPECT_EQ(store_->BindNamespace(record).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ChunkStoreTest, DropNamespaceTakesOnlyItsOwnChunks) {
  Open();
  Put(1, 4096);
  const NamespaceIndex model = ns_;
  ns_ = *store_->BindNamespace(TestNamespace("other"));
  Put(2, 4096);
  Put(3, 4096);
  EXPECT_EQ(store_->DropNamespace(TestNamespace("other").id), 2u);
  EXPECT_FALSE(Has(2));
  // Chunks put afterwards live.
  EXPECT_NE(Put(2, 4096), Version(0));
  EXPECT_TRUE(Has(2));
  EXPECT_TRUE(store_->Contains(model, NameOf(1), now_));
  EXPECT_EQ(Counters().removed_by_cause(wire::CAUSE_NAMESPACE_REMOVED), 2u);
  EXPECT_EQ(store_->DropNamespace(TestNamespace("unknown").id), 0u);
}

TEST_F(ChunkStoreTest, ReportBadKeepsSoundChunksAndDropsBadOnes) {
  Open();
  const Version v = Put(1, 8192);
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(1), v), wire::CHUNK_OK);
  {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
    EXPECT_TRUE(ref.verified());                         // the store has just checked it
    const_cast<char*>(ref.payload().data())[5000] ^= 1;  // memory rots
  }
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(1), Version(v.value + 1)), wire::CHUNK_NOT_FOUND);
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(1), v), wire::CHUNK_DATA_LOSS);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(store_->ReportBad(ns_, NameOf(1), v), wire::CHUNK_NOT_FOUND);
  EXPECT_EQ(Counters().verify_failures(), 1u);
  EXPECT_NE(Put(1, 8192), Version(0));
}

// Every bit of a header that a reader relies on, flipped in turn behind a running store.
TEST_F(ChunkStoreTest, ChunkWhoseHeaderRotsIsDroppedAndItsExtentComesBack) {
  StoreSetup setup;
  setup.kind = SegmentKind::kFile;
  Open(setup);
  PutOptions parts;
  parts.part_bytes = 4096;
  const int fd = open((dir_ / "dram-0").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  Superblock superblock;
  ASSERT_EQ(pread(fd, &superblock, sizeof(superblock), 0), ssize_t{sizeof(superblock)});
  uint64_t dropped = 0;
  for (uint64_t bit = 32; bit < 124 * 8; bit += 5) {  // all but magic, format and state
    Put(1, 20'000, parts);
    Put(2, 4096);
    std::vector<ChunkHeader> headers(superblock.header_count);
    const auto header_bytes = static_cast<ssize_t>(headers.size() * kHeaderBytes);
    ASSERT_EQ(pread(fd, headers.data(), header_bytes, superblock.header_offset), header_bytes);
    for (size_t h = 0; h < headers.size(); ++h) {
      if (std::memcmp(headers[h].key_id, NameOf(1).id.bytes.data(), 16) != 0 ||
          HeaderWordState(headers[h].word) == HeaderState::kFree) {
        continue;
      }
      const auto at = static_cast<off_t>(superblock.header_offset + h * kHeaderBytes + bit / 8);
      uint8_t byte;
      ASSERT_EQ(pread(fd, &byte, 1, at), 1);
      byte ^= 1 << bit % 8;
      ASSERT_EQ(pwrite(fd, &byte, 1, at), 1);
    }
    // By a get, by a report, by eviction: whoever comes first.
    switch (bit % 3) {
      case 0:
        EXPECT_FALSE(store_->Acquire(ns_, NameOf(1), now_)) << bit;
        ++dropped;
        break;
      case 1:
        EXPECT_EQ(store_->ReportBad(ns_, NameOf(1), Version(0)), wire::CHUNK_DATA_LOSS) << bit;
        ++dropped;
        break;
      default:
        EXPECT_EQ(store_->Remove(ns_, NameOf(1), Version(0), wire::CAUSE_REMOVED), wire::CHUNK_OK);
    }
    EXPECT_FALSE(Has(1));
    EXPECT_TRUE(HasBytes(2, 4096));
  }
  close(fd);
  EXPECT_EQ(Counters().verify_failures(), dropped);
  EXPECT_EQ(Counters().removed_by_cause(wire::CAUSE_CORRUPT), dropped);
  EXPECT_NE(Put(1, 20'000, parts), Version(0));
  EXPECT_TRUE(HasBytes(1, 20'000));
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreTest, HeaderThatRotsUnderAReaderLeavesItItsBytes) {
  Open();
  Put(1, 8192);
  ChunkRef held = store_->Acquire(ns_, NameOf(1), now_);
  // The header is found in front of the payload, by the key.
  char* const payload = const_cast<char*>(held.payload().data());
  char* header = payload;
  do {
    header -= kHeaderBytes;
  } while (std::memcmp(header + offsetof(ChunkHeader, key_id), NameOf(1).id.bytes.data(), 16) !=
               0 ||
           reinterpret_cast<uintptr_t>(header) % kHeaderBytes != 0);
  header[offsetof(ChunkHeader, payload_offset) + 4] ^= 1;
  EXPECT_FALSE(store_->Acquire(ns_, NameOf(1), now_));
  EXPECT_EQ(std::string(payload, 8192), PatternBytes(1, 8192));
  EXPECT_NE(Put(1, 8192), Version(0));
  held.Release();
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreTest, RecheckRefusesBytesThatDoNotMatchTheirDigests) {
  Open();
  CommitOptions options;
  options.recheck = true;
  PutAnswer bad = Begin(1, 4096);
  FillSlot(1, &bad.slot);
  bad.slot.payload()[4095] ^= 1;
  EXPECT_EQ(store_->Commit(std::move(bad.slot), options, now_).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(store_->AllFree());
  PutAnswer good = Begin(1, 4096);
  FillSlot(1, &good.slot);
  ASSERT_TRUE(store_->Commit(std::move(good.slot), options, now_).ok());
  EXPECT_TRUE(store_->Acquire(ns_, NameOf(1), now_).verified());
}

TEST_F(ChunkStoreTest, ChunkWithoutDigestHasNoneToShow) {
  Open();
  PutAnswer answer = Begin(1, 4096);
  FillPattern(1, answer.slot.payload().data(), 4096);
  CommitOptions options;
  options.digest_kind = wire::DIGEST_NONE;
  ASSERT_TRUE(store_->Commit(std::move(answer.slot), options, now_).ok());
  const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
  EXPECT_TRUE(ref.part_digests().empty());
  EXPECT_EQ(ref.root(), 0u);
  EXPECT_EQ(ref.digest_kind(), wire::DIGEST_NONE);
  EXPECT_TRUE(store_->Verify(ref).ok());
}

TEST_F(ChunkStoreTest, ReplaceIsForMutableNamespacesOnly) {
  Open();
  PutOptions replace;
  replace.replace = true;
  EXPECT_EQ(Begin(1, 4096, replace).status, wire::CHUNK_FAILED_PRECONDITION);

  wire::NamespaceOptions options;
  options.set_mutable_chunks(true);
  ns_ = *store_->BindNamespace(TestNamespace("mutable", options));
  const Version first = Put(1, 4096);
  const ChunkRef old_ref = store_->Acquire(ns_, NameOf(1), now_);
  PutAnswer answer = Begin(1, 8192, replace);
  ASSERT_TRUE(answer.slot);
  EXPECT_TRUE(HasBytes(1, 4096));  // until it is committed
  FillSlot(50, &answer.slot);
  const Version second = *store_->Commit(std::move(answer.slot), {}, now_);
  EXPECT_GT(second, first);
  EXPECT_EQ(std::string(old_ref.payload().data(), 4096), PatternBytes(1, 4096));
  const ChunkRef now_ref = store_->Acquire(ns_, NameOf(1), now_);
  EXPECT_EQ(std::string(now_ref.payload().data(), 8192), PatternBytes(50, 8192));
  EXPECT_EQ(Usage().chunk_count(), 1u);
  // Two records: the key is never reported gone.
  EXPECT_EQ(store_->log().range().next, 3u);
}

TEST_F(ChunkStoreTest, SegmentsAreUsedEvenly) {
  StoreSetup setup;
  setup.segment_bytes = {8 * kMiB, 8 * kMiB, 16 * kMiB};
  Open(setup);
  uint64_t n = 0;
  while (Put(n, 256 << 10) != Version(0)) ++n;
  std::vector<wire::SegmentInfo> infos;
  store_->SegmentInfos(&infos);
  ASSERT_EQ(infos.size(), 3u);
  for (const wire::SegmentInfo& info : infos) {
    EXPECT_LT(info.free_bytes(), 256u << 10) << info.bytes();
    EXPECT_FALSE(info.persistent());
  }
  for (uint64_t i = 0; i < n; ++i) EXPECT_TRUE(HasBytes(i, 256 << 10));
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ChunkStoreTest, UsageIsTheSumOfWhatIsHeld) {
  Open();
  Put(1, 5'000);
  Put(2, 4'096);
  const PutAnswer open = Begin(3, 4'096);
  now_ += absl::Seconds(30);
  const wire::TierUsage usage = Usage();
  EXPECT_EQ(usage.tier(), wire::TIER_DRAM);
  EXPECT_EQ(usage.used_bytes(), 16'384u);       // 8 + 4 + 4 KiB
  EXPECT_EQ(usage.committed_bytes(), 12'288u);  // 8 + 4 KiB
  EXPECT_EQ(usage.payload_bytes(), 9'096u);
  EXPECT_EQ(usage.chunk_count(), 2u);
  EXPECT_EQ(usage.headers_used(), 3u);
  EXPECT_EQ(usage.header_count(), 2048u);  // 8 MiB / 4 KiB
  EXPECT_EQ(usage.oldest_age_s(), 30u);
  // 4 KiB superblock, 16 slots of 5 KiB, 2,048 headers of 128 B.
  EXPECT_EQ(usage.capacity_bytes(), 8 * kMiB - 4096 - 16 * 5120 - 2048 * 128);
  EXPECT_EQ(usage.largest_free_extent_bytes(), usage.capacity_bytes() - 16'384);
}

TEST_F(ChunkStoreTest, PagesGiveEveryChunkOnce) {
  Open();
  for (uint64_t n = 0; n < 10; ++n) Put(n, 4096);
  store_->Remove(ns_, NameOf(4), Version(0), wire::CAUSE_REMOVED);
  std::string ids;
  std::optional<uint64_t> cursor = 0;
  while (cursor.has_value()) {
    wire::SnapshotPage page;
    cursor = store_->ReadPage(*cursor, 4, &page);
    EXPECT_LE(page.records().ids().size(), 4 * 16u);
    EXPECT_EQ(page.last_access().size(), page.records().ids().size() / 4);
    ids += page.records().ids();
  }
  std::string expected;
  for (uint64_t n = 0; n < 10; ++n) {
    if (n != 4) expected += NameOf(n).id.view();
  }
  EXPECT_EQ(ids, expected);
}

TEST_F(ChunkStoreTest, HitsAndMissesAreCounted) {
  Open();
  Put(1, 4096);
  const std::vector<ChunkName> names = {NameOf(1), NameOf(2), NameOf(3)};
  std::vector<ChunkRef> refs(3);
  EXPECT_EQ(store_->AcquireMany(ns_, names, now_, absl::MakeSpan(refs)), 1u);
  EXPECT_TRUE(refs[0]);
  EXPECT_FALSE(refs[1]);
  const wire::StoreCounters counters = Counters();
  EXPECT_EQ(counters.get_chunks(), 3u);
  EXPECT_EQ(counters.get_hits(), 1u);
  EXPECT_EQ(counters.get_misses(), 2u);
  EXPECT_EQ(counters.put_chunks(), 1u);
  EXPECT_EQ(counters.put_bytes(), 4096u);
}

}  // namespace
}  // namespace cistern::store
