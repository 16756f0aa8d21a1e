// Chunks that are replaced, and keys that are kept beside chunks.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "store/chunk_store.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

class ReplaceTest : public ChunkStoreTestBase {
 protected:
  void SetUp() override {
    Open();
    wire::NamespaceOptions options;
    options.set_mutable_chunks(true);
    ns_ = *store_->BindNamespace(TestNamespace("mutable", options));
    replace_.replace = true;
  }
  // What `answer` was given for, filled with the bytes of chunk `pattern`.
  absl::StatusOr<Version> Fill(PutAnswer answer, uint64_t pattern) {
    EXPECT_TRUE(answer.slot);
    FillSlot(pattern, &answer.slot);
    return store_->Commit(std::move(answer.slot), {}, now_);
  }
  // Whether chunk `n` has the bytes of chunk `pattern`.
  bool Reads(uint64_t n, uint64_t pattern, uint64_t length) {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(n), now_);
    return ref && ref.length() == length &&
           std::string(ref.payload().data(), length) == PatternBytes(pattern, length);
  }
  wire::Delta Records(uint64_t from) const {
    wire::Delta delta;
    EXPECT_TRUE(store_->log().Take(from, 4096, &delta).ok());
    return delta;
  }

  PutOptions replace_;
};

TEST_F(ReplaceTest, OfWhatIsNotThereIsAPut) {
  ASSERT_TRUE(Fill(Begin(1, 4096, replace_), 1).ok());
  EXPECT_TRUE(Reads(1, 1, 4096));
}

TEST_F(ReplaceTest, OfSeveralAtATimeTheLastToCommitStays) {
  Put(1, 4096);
  PutAnswer first = Begin(1, 8192, replace_);
  PutAnswer second = Begin(1, 12'288, replace_);
  PutAnswer third = Begin(1, 4096, replace_);
  ASSERT_TRUE(first.slot && second.slot && third.slot);
  ASSERT_TRUE(Fill(std::move(second), 22).ok());
  EXPECT_TRUE(Reads(1, 22, 12'288));
  third.slot.Abort();  // its client died
  EXPECT_TRUE(Reads(1, 22, 12'288));
  ASSERT_TRUE(Fill(std::move(first), 21).ok());
  EXPECT_TRUE(Reads(1, 21, 8192));
  EXPECT_EQ(store_->chunk_count(), 1u);
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ReplaceTest, IsNotUndoneByAPutThatBeganBefore) {
  PutAnswer put = Begin(1, 4096);
  ASSERT_TRUE(Fill(Begin(1, 8192, replace_), 2).ok());
  EXPECT_EQ(Fill(std::move(put), 1).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Reads(1, 2, 8192));
  // The same in a batch: the others of it are committed.
  std::vector<PutAnswer> answers(2);
  const std::vector<PutItem> items = {{NameOf(5), 4096, 0}, {NameOf(6), 4096, 1}};
  store_->BeginPut(ns_, items, {}, now_, absl::MakeSpan(answers));
  ASSERT_TRUE(Fill(Begin(5, 8192, replace_), 55).ok());
  std::vector<PutSlot> slots(2);
  for (size_t i = 0; i < 2; ++i) {
    FillSlot(5 + i, &answers[i].slot);
    slots[i] = std::move(answers[i].slot);
  }
  std::vector<Version> versions(2);
  ASSERT_TRUE(store_->CommitBatch(absl::MakeSpan(slots), {}, now_, absl::MakeSpan(versions)).ok());
  EXPECT_EQ(versions[0], Version(0));
  EXPECT_NE(versions[1], Version(0));
  EXPECT_TRUE(Reads(5, 55, 8192));
  EXPECT_TRUE(Reads(6, 6, 4096));
  EXPECT_EQ(store_->inflight_bytes(), 0u);
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

TEST_F(ReplaceTest, ReadersOfTheOldBytesKeepThemAndThenTheyAreFree) {
  Put(1, 8192);
  ChunkRef old = store_->Acquire(ns_, NameOf(1), now_);
  ASSERT_TRUE(Fill(Begin(1, 8192, replace_), 2).ok());
  EXPECT_EQ(std::string(old.payload().data(), 8192), PatternBytes(1, 8192));
  EXPECT_TRUE(Reads(1, 2, 8192));
  wire::TierUsage usage;
  store_->Usage(now_, &usage);
  EXPECT_EQ(usage.used_bytes(), 16'384u);
  old.Release();
  store_->Usage(now_, &usage);
  EXPECT_EQ(usage.used_bytes(), 8192u);
}

TEST_F(ReplaceTest, WithoutRoomTheOldBytesStayWhateverElseGoes) {
  // 8 MiB less the tables: two chunks of 3 MiB, no third.
  Put(1, 3 * kMiB);
  Put(2, 3 * kMiB);
  EXPECT_EQ(Begin(1, 3 * kMiB, replace_).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  ASSERT_EQ(room_.extent_bytes, 3 * kMiB + 4096);  // with its part table
  {
    const std::vector<ChunkName> names = {NameOf(1), NameOf(99)};
    const std::vector<ChunkRef> held = store_->Hold(ns_, names);
    EXPECT_EQ(held.size(), 1u);
    // Chunk 1 is the oldest and would be the first to go.
    const EvictResult freed =
        store_->EvictSelf(room_.bytes, room_.extent_bytes, wire::CAUSE_EVICT_SELF, now_);
    EXPECT_EQ(freed.chunks, 1u);
    EXPECT_TRUE(Has(1));
    EXPECT_FALSE(Has(2));
    ASSERT_TRUE(Fill(Begin(1, 3 * kMiB, replace_), 7).ok());
  }
  EXPECT_TRUE(Reads(1, 7, 3 * kMiB));
  // Alone and too large for a second copy of it: refused, and still there.
  const std::vector<ChunkName> names = {NameOf(1)};
  const std::vector<ChunkRef> held = store_->Hold(ns_, names);
  EXPECT_EQ(Begin(1, 6 * kMiB, replace_).status, wire::CHUNK_RESOURCE_EXHAUSTED);
  EXPECT_EQ(store_->EvictSelf(6 * kMiB, 6 * kMiB, wire::CAUSE_EVICT_SELF, now_).chunks, 0u);
  EXPECT_TRUE(Reads(1, 7, 3 * kMiB));
}

TEST_F(ReplaceTest, RecordsAndPagesCarryTheMutation) {
  replace_.mutation = 77;
  ASSERT_TRUE(Fill(Begin(1, 4096, replace_), 1).ok());
  replace_.mutation = 78;
  ASSERT_TRUE(Fill(Begin(1, 8192, replace_), 2).ok());
  const wire::Delta delta = Records(1);
  EXPECT_EQ(delta.mutations(), std::string("\x4d\0\0\0\0\0\0\0\x4e\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(delta.causes(), std::string({wire::CAUSE_PUT, wire::CAUSE_REPLACED}));
  wire::SnapshotPage page;
  EXPECT_EQ(store_->ReadPage(0, 100, &page), std::nullopt);
  EXPECT_EQ(page.records().mutations(), std::string("\x4e\0\0\0\0\0\0\0", 8));
}

TEST_F(ReplaceTest, MutationMeansNothingInImmutableNamespaces) {
  ns_ = *store_->FindNamespace(TestNamespace("model").id);
  PutOptions options;
  options.mutation = 5;
  ASSERT_TRUE(Fill(Begin(1, 4096, options), 1).ok());
  EXPECT_EQ(Records(1).mutations(), "");
}

TEST_F(ReplaceTest, AnotherNamespacesChunkOfTheSameIdIsLeftAlone) {
  // Ids are hashes with the namespace in them; only a peer that makes ids up gets here.
  PutAnswer mine = Begin(1, 4096, replace_);
  const NamespaceIndex mutable_ns = ns_;
  ns_ = *store_->FindNamespace(TestNamespace("model").id);
  PutAnswer theirs = Begin(1, 4096);
  EXPECT_EQ(theirs.status, wire::CHUNK_IN_PROGRESS);
  mine.slot.Abort();
  ASSERT_NE(Put(1, 4096), Version(0));
  ns_ = mutable_ns;
  EXPECT_EQ(Begin(1, 4096, replace_).status, wire::CHUNK_FAILED_PRECONDITION);
  ns_ = *store_->FindNamespace(TestNamespace("model").id);
  EXPECT_TRUE(HasBytes(1, 4096));
}

TEST_F(ReplaceTest, GetsBringWholeValuesAndNeverOneOlderThanAcknowledged) {
  constexpr uint64_t kBytes = 20'000;
  constexpr int kWriters = 3;
  constexpr int kRounds = 400;
  Put(1, kBytes);
  std::atomic<uint64_t> acknowledged{0};  // the greatest version that a replace was told
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < kRounds; ++i) {
        const PutItem item{NameOf(1), kBytes, 0};
        PutAnswer answer;
        store_->BeginPut(ns_, {&item, 1}, replace_, now_, {&answer, 1});
        if (!answer.slot) {
          ADD_FAILURE() << "status " << answer.status;
          continue;
        }
        FillSlot(static_cast<uint64_t>(1000 * w + i), &answer.slot);
        const auto version = store_->Commit(std::move(answer.slot), {}, now_);
        if (!version.ok()) continue;
        uint64_t seen = acknowledged.load();
        while (seen < version->value && !acknowledged.compare_exchange_weak(seen, version->value)) {
        }
      }
      over = true;
    });
  }
  threads.emplace_back([&] {
    while (!over) {
      const uint64_t before = acknowledged.load();
      const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
      ASSERT_TRUE(ref);
      EXPECT_GE(ref.version().value, before);
      EXPECT_TRUE(store_->Verify(ref).ok());
    }
  });
  for (std::thread& thread : threads) thread.join();
  RemoveAll();
  EXPECT_TRUE(store_->AllFree());
}

class KeptKeyTest : public ChunkStoreTestBase {
 protected:
  void SetUp() override {
    Open();
    BindKeeper();
  }
  void BindKeeper() {
    wire::NamespaceOptions options;
    options.set_keep_keys(true);
    options.set_mutable_chunks(true);
    ns_ = *store_->BindNamespace(TestNamespace("keeper", options));
  }
  wire::ChunkStatus PutKey(uint64_t n, const std::string& key, uint64_t length = 4096,
                           const PutOptions& options = {}) {
    const PutItem item{NameOf(n), length, 0, key};
    PutAnswer answer;
    store_->BeginPut(ns_, {&item, 1}, options, now_, {&answer, 1});
    if (!answer.slot) return answer.status;
    FillSlot(n, &answer.slot);
    EXPECT_TRUE(store_->Commit(std::move(answer.slot), {}, now_).ok());
    return wire::CHUNK_OK;
  }
  // The header of chunk `n`, found in front of the payload by the key.
  char* HeaderOf(uint64_t n) {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(n), now_);
    char* header = const_cast<char*>(ref.payload().data()) - kHeaderBytes;
    while (reinterpret_cast<uintptr_t>(header) % kHeaderBytes != 0 ||
           std::memcmp(header + offsetof(ChunkHeader, key_id), NameOf(n).id.bytes.data(), 16) !=
               0) {
      header -= kHeaderBytes;
    }
    return header;
  }
  // The whole walk, with `between` after each stretch.
  template <typename F>
  std::multimap<std::string, uint64_t> Walk(F between) {
    std::multimap<std::string, uint64_t> all;
    std::optional<uint64_t> cursor = 0;
    std::vector<KeptKey> found;
    while (cursor.has_value()) {
      found.clear();
      cursor = store_->ReadKeys(ns_, *cursor, now_, &found);
      for (const KeptKey& kept : found) all.emplace(kept.key, kept.length);
      between();
    }
    return all;
  }
  std::multimap<std::string, uint64_t> Walk() {
    return Walk([] {});
  }
};

TEST_F(KeptKeyTest, ComesBackWithTheLengthOfItsChunk) {
  PutOptions parts;
  parts.part_bytes = 4096;
  EXPECT_EQ(PutKey(1, "one"), wire::CHUNK_OK);
  EXPECT_EQ(PutKey(2, std::string("\0\xff", 2), 10'000, parts), wire::CHUNK_OK);
  EXPECT_EQ(PutKey(3, std::string(4096, 'k'), 5000), wire::CHUNK_OK);
  EXPECT_EQ(Walk(), (std::multimap<std::string, uint64_t>{{"one", 4096},
                                                          {std::string("\0\xff", 2), 10'000},
                                                          {std::string(4096, 'k'), 5000}}));
  EXPECT_TRUE(HasBytes(1, 4096));
  EXPECT_TRUE(HasBytes(2, 10'000));
  EXPECT_TRUE(HasBytes(3, 5000));
}

TEST_F(KeptKeyTest, CostsItsBytesAndNoMore) {
  // 4,090 bytes, rounded up to 4,096, and 2 + 1: a second page.
  EXPECT_EQ(PutKey(1, "k", 4096), wire::CHUNK_OK);
  EXPECT_EQ(store_->Acquire(ns_, NameOf(1), now_).extent_bytes(), 8192u);
  // 8,184 + 2 + 6 fills two pages to the last byte.
  EXPECT_EQ(PutKey(2, "sixbyt", 8184), wire::CHUNK_OK);
  EXPECT_EQ(store_->Acquire(ns_, NameOf(2), now_).extent_bytes(), 8192u);
  EXPECT_EQ(PutKey(3, "7 bytes", 8184), wire::CHUNK_OK);
  EXPECT_EQ(store_->Acquire(ns_, NameOf(3), now_).extent_bytes(), 12'288u);
}

TEST_F(KeptKeyTest, IsNeededAndBounded) {
  EXPECT_EQ(PutKey(1, ""), wire::CHUNK_INVALID_ARGUMENT);
  EXPECT_EQ(PutKey(1, std::string(4097, 'k')), wire::CHUNK_INVALID_ARGUMENT);
}

TEST_F(KeptKeyTest, OtherNamespacesAndWhatHasExpiredAreNotListed) {
  PutOptions soon;
  soon.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(now_ + absl::Seconds(2)));
  EXPECT_EQ(PutKey(1, "stays"), wire::CHUNK_OK);
  EXPECT_EQ(PutKey(2, "goes", 4096, soon), wire::CHUNK_OK);
  const NamespaceIndex keeper = ns_;
  ns_ = *store_->FindNamespace(TestNamespace("model").id);
  ASSERT_NE(Put(3, 4096), Version(0));
  EXPECT_TRUE(Walk().empty());
  ns_ = keeper;
  EXPECT_EQ(Walk().size(), 2u);
  now_ += absl::Seconds(3);
  EXPECT_EQ(Walk().count("goes"), 0u);
}

TEST_F(KeptKeyTest, ReplacedMeanwhileItIsStillFoundAndWithItsNewLength) {
  StoreSetup setup;
  setup.segment_bytes = {64 * kMiB};  // a table of several stretches
  Open(setup);
  BindKeeper();
  for (uint64_t n = 0; n < 2000; ++n) {
    ASSERT_EQ(PutKey(n, "key " + std::to_string(n)), wire::CHUNK_OK);
  }
  PutOptions replace;
  replace.replace = true;
  uint64_t next = 0;
  const auto all = Walk([&] {
    for (int i = 0; i < 400; ++i, ++next) {
      const uint64_t n = next * 7 % 2000;
      ASSERT_EQ(PutKey(n, "key " + std::to_string(n), 8192, replace), wire::CHUNK_OK);
    }
  });
  std::set<std::string> keys;
  for (const auto& [key, length] : all) keys.insert(key);
  EXPECT_EQ(keys.size(), 2000u);
}

TEST_F(KeptKeyTest, RottenLengthLeadsNowhere) {
  EXPECT_EQ(PutKey(1, "key"), wire::CHUNK_OK);
  {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
    const uint16_t rotten = 0xFFFF;
    std::memcpy(const_cast<char*>(ref.payload().data()) + 4096, &rotten, sizeof(rotten));
  }
  EXPECT_TRUE(Walk().empty());
}

TEST_F(KeptKeyTest, LengthThatRotsWithinTheExtentIsNoKey) {
  // 4,096 + 2 + 4,096 bytes take three pages, so 8,190 would fit behind the payload.
  EXPECT_EQ(PutKey(1, std::string(4096, 'k')), wire::CHUNK_OK);
  {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(1), now_);
    const uint16_t rotten = 4097;
    std::memcpy(const_cast<char*>(ref.payload().data()) + 4096, &rotten, sizeof(rotten));
  }
  EXPECT_TRUE(Walk().empty());
}

TEST_F(KeptKeyTest, ChunkWhoseHeaderRotsIsNotListed) {
  const struct {
    size_t byte;
    uint8_t flip;
  } rots[] = {
      {offsetof(ChunkHeader, payload_offset) + 5, 0x40},  // far outside the segment
      {offsetof(ChunkHeader, payload_length) + 6, 0x20},
      {offsetof(ChunkHeader, payload_length) + 1, 0x10},
      {offsetof(ChunkHeader, part_bytes), 1},
      {offsetof(ChunkHeader, extent_units) + 3, 0x7F},
      {offsetof(ChunkHeader, version), 1},
      {offsetof(ChunkHeader, key_id), 1},
  };
  EXPECT_EQ(PutKey(1, "sound"), wire::CHUNK_OK);
  EXPECT_EQ(PutKey(2, "rots"), wire::CHUNK_OK);
  char* const header = HeaderOf(2);
  for (const auto& rot : rots) {
    header[rot.byte] = static_cast<char>(header[rot.byte] ^ rot.flip);
    EXPECT_EQ(Walk(), (std::multimap<std::string, uint64_t>{{"sound", 4096}})) << rot.byte;
    header[rot.byte] = static_cast<char>(header[rot.byte] ^ rot.flip);
  }
  EXPECT_EQ(Walk().size(), 2u);
}

TEST_F(KeptKeyTest, MutationOfARottenHeaderIsNotReported) {
  PutOptions put;
  put.mutation = 9;
  EXPECT_EQ(PutKey(1, "key", 4096, put), wire::CHUNK_OK);
  const auto reported = [&] {
    wire::SnapshotPage page;
    EXPECT_FALSE(store_->ReadPage(0, 100, &page).has_value());
    EXPECT_EQ(page.records().ids().size(), 16u);
    const std::string& mutations = page.records().mutations();
    return mutations.empty() ? std::string(8, '\0') : mutations;
  };
  EXPECT_EQ(reported(), std::string("\x09\0\0\0\0\0\0\0", 8));
  HeaderOf(1)[offsetof(ChunkHeader, mutation) + 7] ^= 0x40;
  EXPECT_EQ(reported(), std::string(8, '\0'));
}

class KeptKeyRecoveryTest : public ChunkStoreTestBase {};

TEST_F(KeptKeyRecoveryTest, OutlivesTheProcessWithTheMutation) {
  StoreSetup setup;
  setup.kind = SegmentKind::kFile;
  Open(setup);
  wire::NamespaceOptions options;
  options.set_keep_keys(true);
  options.set_mutable_chunks(true);
  ns_ = *store_->BindNamespace(TestNamespace("keeper", options));
  const PutItem item{NameOf(1), 10'000, 0, "the key"};
  PutOptions put;
  put.mutation = 9;
  PutAnswer answer;
  store_->BeginPut(ns_, {&item, 1}, put, now_, {&answer, 1});
  FillSlot(1, &answer.slot);
  ASSERT_TRUE(store_->Commit(std::move(answer.slot), {}, now_).ok());
  Open(setup);
  ns_ = *store_->FindNamespace(TestNamespace("keeper").id);
  EXPECT_TRUE(store_->NamespaceOptionsOf(ns_).keep_keys());
  EXPECT_TRUE(store_->NamespaceOptionsOf(ns_).mutable_chunks());
  std::vector<KeptKey> found;
  std::optional<uint64_t> cursor = 0;
  while (cursor.has_value()) cursor = store_->ReadKeys(ns_, *cursor, now_, &found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "the key");
  EXPECT_EQ(found[0].length, 10'000u);
  wire::SnapshotPage page;
  store_->ReadPage(0, 100, &page);
  EXPECT_EQ(page.records().mutations(), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_TRUE(HasBytes(1, 10'000));
}

}  // namespace
}  // namespace cistern::store
