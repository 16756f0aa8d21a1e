// What the tests of ChunkStore share: a store over small segments, and puts and gets in one line.
#ifndef CISTERN_STORE_CHUNK_STORE_TESTING_H_
#define CISTERN_STORE_CHUNK_STORE_TESTING_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/key_hash.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "store/chunk_store.h"

namespace cistern::store {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr absl::Time kTestStart = absl::FromUnixSeconds(1'800'000'000);

inline PoolId TestPool() { return PoolId::FromBytes("test pool 16 B.."); }

inline NamespaceRecord TestNamespace(const std::string& name,
                                     const wire::NamespaceOptions& options = {}) {
  NamespaceRecord record;
  record.name = name;
  record.fingerprint = "fp of " + name;
  record.id = DeriveNamespaceId("", record.name, record.fingerprint);
  record.options = options;
  return record;
}

// The name of chunk number `n`, whose bytes are PatternBytes(n, length).
inline ChunkName NameOf(uint64_t n, uint16_t shard = 0) {
  ChunkName name;
  const uint64_t mixed = n * 0x9E3779B97F4A7C15u + 1;
  std::memcpy(name.id.bytes.data(), &n, 8);
  std::memcpy(name.id.bytes.data() + 8, &mixed, 8);
  name.shard = Shard(shard);
  return name;
}

// Fills a slot as a receiver does: bytes, then the digests of its parts.
inline void FillSlot(uint64_t n, PutSlot* slot) {
  FillPattern(n, slot->payload().data(), slot->payload().size());
  for (uint32_t i = 0; i < slot->layout().count; ++i) {
    slot->part_table()[i] =
        DigestOf(slot->payload().data() + slot->layout().PartBegin(i), slot->layout().PartBytes(i));
  }
}

struct StoreSetup {
  std::vector<uint64_t> segment_bytes = {8 * kMiB};
  SegmentKind kind = SegmentKind::kMemfd;
  uint64_t expected_chunk_bytes = 4096;
  ChunkStoreOptions options;
};

inline absl::StatusOr<std::unique_ptr<ChunkStore>> OpenStore(const TempDir& folder,
                                                             const StoreSetup& setup,
                                                             absl::Time now = kTestStart) {
  auto versions = VersionCeiling::Open({folder.path(), TestPool()});
  if (!versions.ok()) return versions.status();
  std::vector<std::unique_ptr<Segment>> segments;
  for (size_t i = 0; i < setup.segment_bytes.size(); ++i) {
    SegmentOptions options;
    options.kind = setup.kind;
    options.path = folder.path() + "/dram-" + std::to_string(i);
    options.bytes = setup.segment_bytes[i];
    options.expected_chunk_bytes = setup.expected_chunk_bytes;
    options.pool_id = TestPool();
    auto segment = Segment::Open(options, now);
    if (!segment.ok()) return segment.status();
    segments.push_back(*std::move(segment));
  }
  return ChunkStore::Create(setup.options, std::move(segments), *std::move(versions), now);
}

// A store in memory with one namespace.
class ChunkStoreTestBase : public testing::Test {
 protected:
  void Open(const StoreSetup& setup = {}) {
    store_.reset();
    auto store = OpenStore(dir_, setup);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ns_ = *store_->BindNamespace(TestNamespace("model"));
  }

  PutAnswer Begin(uint64_t n, uint64_t length, const PutOptions& options = {}) {
    const PutItem item{NameOf(n), length, 0};
    PutAnswer answer;
    room_ = store_->BeginPut(ns_, {&item, 1}, options, now_, {&answer, 1});
    return answer;
  }
  // Puts chunk `n`; its version, or 0 when it was not put.
  Version Put(uint64_t n, uint64_t length, const PutOptions& options = {}) {
    PutAnswer answer = Begin(n, length, options);
    if (!answer.slot) return Version(0);
    FillSlot(n, &answer.slot);
    const auto version = store_->Commit(std::move(answer.slot), {}, now_);
    EXPECT_TRUE(version.ok()) << version.status();
    return version.ok() ? *version : Version(0);
  }
  bool Has(uint64_t n) const { return store_->Contains(ns_, NameOf(n), now_); }
  // The chunk is there with exactly the bytes put.
  bool HasBytes(uint64_t n, uint64_t length) {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(n), now_);
    return ref &&
           std::string(ref.payload().data(), ref.payload().size()) == PatternBytes(n, length);
  }
  void RemoveAll() {
    for (const NamespaceUsage& usage : store_->NamespaceUsages()) {
      store_->DropNamespace(usage.record.id);
    }
  }

  TempDir dir_;
  std::unique_ptr<ChunkStore> store_;
  NamespaceIndex ns_;
  RoomNeeded room_;
  absl::Time now_ = kTestStart;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CHUNK_STORE_TESTING_H_
