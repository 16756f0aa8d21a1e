#include "store/header_table.h"

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

constexpr Extent kPayload{1 << 20, 1 << 20};

HeaderFields Fields(uint64_t version, uint64_t offset = kPayload.offset, uint8_t key = 1) {
  HeaderFields f;
  f.name.id.bytes.fill(key);
  f.name.shard = Shard(5);
  f.namespace_id.bytes.fill(9);
  f.version = Version(version);
  f.length = 10'000;
  f.extent = {offset, 12'288};
  f.root_digest = 0x1122334455667788;
  f.created_unix_ms = 1'800'000'000'000;
  f.expiry_unix_ms = 1'900'000'000'000;
  f.digest_kind = wire::DIGEST_PRODUCER;
  f.tenant_tag = 0xA1B2C3D4;
  f.single_part_digest = 0x99AABBCCDDEEFF00;
  f.last_access_unix_s = 1'800'000'000;
  return f;
}

class HeaderTableTest : public testing::Test {
 protected:
  HeaderTableTest() : memory_(4), table_(absl::MakeSpan(memory_)) {}

  // What a process finds that starts on a copy of `memory`.
  struct Seen {
    HeaderTable::ScanCounts counts;
    std::vector<HeaderTable::Found> found;
  };
  static Seen ScanCopy(std::vector<ChunkHeader> memory) {
    HeaderTable table(absl::MakeSpan(memory));
    Seen seen;
    seen.counts = table.Scan(kPayload, &seen.found);
    return seen;
  }

  std::vector<ChunkHeader> memory_ = std::vector<ChunkHeader>(4);
  HeaderTable table_;
};

TEST_F(HeaderTableTest, BytesAreThoseOfTheFormat) {
  const HeaderIndex index = *table_.Reserve();
  HeaderFields f = Fields(0x0102030405);
  f.part_bytes = 4096;
  f.single_part_digest = 0;
  table_.Commit(index, f);
  const uint8_t* b = reinterpret_cast<const uint8_t*>(&memory_[0]);
  // Worked out by hand from docs/formats/segment.md, but for the CRC.
  const std::vector<uint8_t> head = {'C', 'H', 1, 2, 0, 0, 0, 0, 1, 1};
  EXPECT_TRUE(std::equal(head.begin(), head.end(), b));
  EXPECT_EQ(b[24], 9);
  const std::vector<uint8_t> version_and_offset = {
      5,    4,    3, 2, 1, 0, 0, 0, 0,    0,    0x10, 0,    0,    0,    0,    0,
      0x10, 0x27, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
  EXPECT_TRUE(std::equal(version_and_offset.begin(), version_and_offset.end(), b + 40));
  const std::vector<uint8_t> tail = {3, 0, 0, 0, 5, 0, 1, 0, 0xD4, 0xC3, 0xB2, 0xA1, 0, 0x10, 0, 0};
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), b + 88));
}

TEST_F(HeaderTableTest, ScanGivesBackWhatWasCommitted) {
  table_.Commit(*table_.Reserve(), Fields(1));
  table_.MarkVerified(HeaderIndex(0));
  table_.Commit(*table_.Reserve(), Fields(2, kPayload.offset + 16'384, 2));
  const Seen seen = ScanCopy(memory_);
  EXPECT_EQ(seen.counts.committed, 2u);
  EXPECT_EQ(seen.counts.free, 2u);
  ASSERT_EQ(seen.found.size(), 2u);
  const HeaderTable::Found& first = seen.found[1];  // the scan goes from the end
  EXPECT_EQ(first.index, HeaderIndex(0));
  EXPECT_TRUE(first.verified);
  EXPECT_FALSE(seen.found[0].verified);
  const HeaderFields expected = Fields(1);
  EXPECT_EQ(first.fields.name, expected.name);
  EXPECT_EQ(first.fields.namespace_id, expected.namespace_id);
  EXPECT_EQ(first.fields.version, Version(1));
  EXPECT_EQ(first.fields.length, 10'000u);
  EXPECT_EQ(first.fields.extent, expected.extent);
  EXPECT_EQ(first.fields.root_digest, expected.root_digest);
  EXPECT_EQ(first.fields.created_unix_ms, expected.created_unix_ms);
  EXPECT_EQ(first.fields.expiry_unix_ms, expected.expiry_unix_ms);
  EXPECT_EQ(first.fields.digest_kind, wire::DIGEST_PRODUCER);
  EXPECT_EQ(first.fields.tenant_tag, 0xA1B2C3D4);
  EXPECT_EQ(first.fields.single_part_digest, expected.single_part_digest);
  EXPECT_EQ(first.fields.last_access_unix_s, 1'800'000'000u);
}

TEST_F(HeaderTableTest, KillAnywhereInACommitLeavesNothingHalfDone) {
  // The header held another chunk before: its bytes are what a torn fill mixes with.
  table_.Commit(*table_.Reserve(), Fields(1));
  table_.Free(HeaderIndex(0));
  table_.Recycle(HeaderIndex(0));
  ASSERT_EQ(table_.Reserve(), HeaderIndex(0));
  const std::vector<ChunkHeader> before = memory_;
  table_.Commit(HeaderIndex(0), Fields(2, kPayload.offset + 4096, 7));
  const std::vector<ChunkHeader> after = memory_;

  // The stores between the two words may have reached memory up to any byte, or in any subset.
  std::mt19937 random(7);
  for (int kind = 0; kind < 2; ++kind) {
    for (size_t stored = 8; stored <= sizeof(ChunkHeader); ++stored) {
      std::vector<ChunkHeader> torn = before;
      char* to = reinterpret_cast<char*>(&torn[0]);
      const char* from = reinterpret_cast<const char*>(&after[0]);
      for (size_t i = 8; i < sizeof(ChunkHeader); ++i) {
        if (kind == 0 ? i < stored : random() % 2 == 0) to[i] = from[i];
      }
      const Seen seen = ScanCopy(torn);
      EXPECT_EQ(seen.counts.writing, 1u);
      EXPECT_TRUE(seen.found.empty());
    }
  }
  const Seen seen = ScanCopy(after);
  ASSERT_EQ(seen.found.size(), 1u);
  EXPECT_EQ(seen.found[0].fields.version, Version(2));
}

TEST_F(HeaderTableTest, FreedHeaderIsFreeWhateverItsBytesSay) {
  table_.Commit(*table_.Reserve(), Fields(1));
  table_.Free(HeaderIndex(0));
  EXPECT_EQ(table_.generation(HeaderIndex(0)), Generation(1));
  EXPECT_EQ(ScanCopy(memory_).counts.free, 4u);
  // The CRC covers the generation: not even a wrong state byte brings the chunk back.
  std::vector<ChunkHeader> forged = memory_;
  forged[0].word = PackHeaderWord(HeaderState::kCommitted, Generation(1));
  const Seen seen = ScanCopy(forged);
  EXPECT_EQ(seen.counts.damaged, 1u);
  EXPECT_TRUE(seen.found.empty());
}

TEST_F(HeaderTableTest, EveryFlippedBitOutsideStateAndLastAccessIsNoticed) {
  table_.Commit(*table_.Reserve(), Fields(1));
  for (size_t bit = 0; bit < 124 * 8; ++bit) {
    if (bit / 8 == 3) continue;  // state
    std::vector<ChunkHeader> flipped = memory_;
    reinterpret_cast<uint8_t*>(&flipped[0])[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const Seen seen = ScanCopy(flipped);
    EXPECT_EQ(seen.counts.damaged, 1u) << bit;
    EXPECT_TRUE(seen.found.empty()) << bit;
  }
}

TEST_F(HeaderTableTest, ScanDropsHeadersThatMakeNoSense) {
  struct Case {
    const char* what;
    void (*spoil)(HeaderFields*);
  };
  const Case cases[] = {
      {"offset before payload", [](HeaderFields* f) { f->extent.offset = 4096; }},
      {"offset behind payload", [](HeaderFields* f) { f->extent.offset = kPayload.end(); }},
      {"extent over the end", [](HeaderFields* f) { f->extent.offset = kPayload.end() - 4096; }},
      {"offset unaligned", [](HeaderFields* f) { f->extent.offset += 512; }},
      {"extent too small", [](HeaderFields* f) { f->extent.bytes = 8192; }},
      {"too short", [](HeaderFields* f) { f->length = 4095; }},
      {"too long", [](HeaderFields* f) { f->length = kMaxChunkBytes + 1; }},
      {"no version", [](HeaderFields* f) { f->version = Version(0); }},
      {"version above 40 bits", [](HeaderFields* f) { f->version = Version(Version::kMax + 1); }},
      {"shard above 12 bits", [](HeaderFields* f) { f->name.shard = Shard(4096); }},
      {"parts no power of two", [](HeaderFields* f) { f->part_bytes = 5000; }},
      {"parts too small", [](HeaderFields* f) { f->part_bytes = 2048; }},
      {"one part with a part size", [](HeaderFields* f) { f->part_bytes = 16'384; }},
      {"unknown flag", [](HeaderFields* f) { f->flags = 2; }},
      {"unknown digest",
       [](HeaderFields* f) { f->digest_kind = static_cast<wire::DigestKind>(200); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::vector<ChunkHeader> memory(1);
    HeaderTable table(absl::MakeSpan(memory));
    HeaderFields f = Fields(1);
    c.spoil(&f);
    table.Commit(*table.Reserve(), f);
    EXPECT_EQ(ScanCopy(memory).counts.damaged, 1u);
  }
}

TEST_F(HeaderTableTest, ScanFreesWhatItDropsAndRebuildsTheFreeList) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table_.Reserve().has_value());
  table_.Commit(HeaderIndex(1), Fields(1));
  memory_[2].word = ~uint64_t{0};  // not ours
  HeaderTable restarted(absl::MakeSpan(memory_));
  std::vector<HeaderTable::Found> found;
  const HeaderTable::ScanCounts counts = restarted.Scan(kPayload, &found);
  EXPECT_EQ(counts.writing, 1u);
  EXPECT_EQ(counts.damaged, 1u);
  EXPECT_EQ(counts.free, 1u);
  EXPECT_EQ(counts.committed, 1u);
  EXPECT_EQ(restarted.used(), 1u);
  std::set<uint32_t> reserved;
  while (const auto index = restarted.Reserve()) reserved.insert(index->value);
  EXPECT_EQ(reserved, (std::set<uint32_t>{0, 2, 3}));
  EXPECT_TRUE(restarted.full());
}

TEST_F(HeaderTableTest, FreedHeaderIsReservableOnlyOnceRecycled) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(table_.Reserve().has_value());
  EXPECT_FALSE(table_.Reserve().has_value());
  table_.Commit(HeaderIndex(2), Fields(1));
  table_.Free(HeaderIndex(2));
  EXPECT_FALSE(table_.Reserve().has_value());
  table_.Recycle(HeaderIndex(2));
  EXPECT_EQ(table_.Reserve(), HeaderIndex(2));
}

TEST_F(HeaderTableTest, AccessIsNotedAtMostOnceAMinute) {
  table_.Commit(*table_.Reserve(), Fields(1));
  table_.Touch(HeaderIndex(0), 1'800'000'059);
  EXPECT_EQ(table_.Read(HeaderIndex(0)).last_access_unix_s, 1'800'000'000u);
  table_.Touch(HeaderIndex(0), 1'800'000'060);
  EXPECT_EQ(table_.Read(HeaderIndex(0)).last_access_unix_s, 1'800'000'060u);
  EXPECT_EQ(ScanCopy(memory_).counts.committed, 1u);  // outside the CRC
}

ScannedHeader Scanned(uint32_t segment, uint32_t index, uint64_t version, uint64_t offset,
                      uint64_t bytes, uint8_t key) {
  ScannedHeader s;
  s.segment = segment;
  s.found.index = HeaderIndex(index);
  s.found.fields = Fields(version, offset, key);
  s.found.fields.extent.bytes = bytes;
  return s;
}

std::vector<uint64_t> Versions(const std::vector<ScannedHeader>& headers) {
  std::vector<uint64_t> versions;
  for (const ScannedHeader& s : headers) versions.push_back(s.found.fields.version.value);
  return versions;
}

TEST(ResolveScanTest, HigherVersionStaysWhereExtentsOverlap) {
  const ResolvedScan r =
      ResolveScan({Scanned(0, 0, 5, 0, 8192, 1), Scanned(0, 1, 6, 4096, 8192, 2),
                   Scanned(0, 2, 4, 12'288, 4096, 3), Scanned(1, 0, 3, 4096, 8192, 4)});
  EXPECT_EQ(Versions(r.kept), (std::vector<uint64_t>{3, 4, 6}));
  EXPECT_EQ(Versions(r.dropped), std::vector<uint64_t>{5});
  EXPECT_EQ(r.overlapping, 1u);
  EXPECT_EQ(r.duplicate, 0u);
}

TEST(ResolveScanTest, HigherVersionStaysWhereAChunkIsThereTwice) {
  const ResolvedScan r = ResolveScan({Scanned(0, 0, 7, 0, 4096, 1), Scanned(1, 0, 9, 0, 4096, 1)});
  EXPECT_EQ(Versions(r.kept), std::vector<uint64_t>{9});
  EXPECT_EQ(r.duplicate, 1u);
}

TEST(ResolveScanTest, WhatIsDroppedKeepsNothingElseOut) {
  // 8 beats 7, so 7 does not stand in the way of 6.
  const ResolvedScan r = ResolveScan({Scanned(0, 0, 8, 0, 8192, 1), Scanned(0, 1, 7, 4096, 8192, 2),
                                      Scanned(0, 2, 6, 8192, 8192, 3)});
  EXPECT_EQ(Versions(r.kept), (std::vector<uint64_t>{6, 8}));
}

}  // namespace
}  // namespace cistern::store
