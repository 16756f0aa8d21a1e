#include "client/placement_cache.h"

#include <optional>

#include "base/test_util.h"
#include "client/avoid_list.h"

namespace cistern {
namespace {

ChunkName Name(uint32_t n, uint16_t shard = 0) {
  ChunkName name;
  std::memcpy(name.id.bytes.data(), &n, sizeof(n));
  name.shard = Shard(shard);
  return name;
}
Placement In(uint16_t first, uint16_t second = LocalStore::kNone) {
  return {{LocalStore(first), LocalStore(second)}};
}

class PlacementCacheTest : public ::testing::Test {
 protected:
  void Put(const ChunkName& name, const Placement& placement, absl::Duration lifetime) {
    PlacementCache::Writer(&cache_, lifetime).Add(name, placement);
  }
  std::optional<Placement> Get(const ChunkName& name) const {
    std::vector<Placement> out;
    cache_.Get({&name, 1}, &out);
    return out[0].stores[0].known() ? std::optional(out[0]) : std::nullopt;
  }
  FakeClock clock_;
  PlacementCache cache_{{.capacity = 1024, .seed = 7, .clock = &clock_}};
};

TEST_F(PlacementCacheTest, RemembersBothReplicasByIdAndShard) {
  Put(Name(1), In(3, 4), absl::Seconds(10));
  Put(Name(1, 1), In(5), absl::Seconds(10));
  ASSERT_TRUE(Get(Name(1)).has_value());
  EXPECT_EQ(Get(Name(1))->stores[0], LocalStore(3));
  EXPECT_EQ(Get(Name(1))->stores[1], LocalStore(4));
  EXPECT_EQ(Get(Name(1, 1))->stores[0], LocalStore(5));
  EXPECT_FALSE(Get(Name(1, 1))->stores[1].known());
  EXPECT_FALSE(Get(Name(2)).has_value());
}

TEST_F(PlacementCacheTest, EntriesEnd) {
  Put(Name(1), In(3), absl::Seconds(10));
  clock_.Advance(absl::Milliseconds(9'800));
  EXPECT_TRUE(Get(Name(1)).has_value());
  clock_.Advance(absl::Milliseconds(300));
  EXPECT_FALSE(Get(Name(1)).has_value());
}

TEST_F(PlacementCacheTest, ShorterLifetimeDoesNotCutALongerOne) {
  Put(Name(1), In(3), absl::Seconds(60));
  Put(Name(1), In(4), absl::Seconds(10));
  clock_.Advance(absl::Seconds(30));
  ASSERT_TRUE(Get(Name(1)).has_value());
  EXPECT_EQ(Get(Name(1))->stores[0], LocalStore(4));
}

TEST_F(PlacementCacheTest, DropForgets) {
  Put(Name(1), In(3), absl::Seconds(10));
  cache_.Drop(Name(1));
  EXPECT_FALSE(Get(Name(1)).has_value());
}

TEST_F(PlacementCacheTest, StaysBoundedAndKeepsTheLatest) {
  // 16 times its capacity: each set sees 128 entries on average, later ones ending later.
  int kept = 0;
  for (uint32_t i = 0; i < 16'384; ++i) {
    Put(Name(i), In(1), absl::Minutes(10));
    clock_.Advance(absl::Milliseconds(10));
  }
  for (uint32_t i = 0; i < 16'384; ++i) kept += Get(Name(i)).has_value() ? 1 : 0;
  EXPECT_EQ(kept, 1024);
  for (uint32_t i = 16'384 - 64; i < 16'384; ++i) EXPECT_TRUE(Get(Name(i)).has_value());
}

TEST_F(PlacementCacheTest, BatchesOfAnySize) {
  for (const size_t n : {1u, 63u, 64u, 65u, 200u}) {
    std::vector<ChunkName> names;
    {
      PlacementCache::Writer writer(&cache_, absl::Seconds(10));
      for (size_t i = 0; i < n; ++i) {
        names.push_back(Name(static_cast<uint32_t>(1'000 * n + i)));
        writer.Add(names.back(), In(static_cast<uint16_t>(i)));
      }
    }
    names.push_back(Name(7));  // never put
    std::vector<Placement> out;
    cache_.Get(names, &out);
    ASSERT_EQ(out.size(), n + 1);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i].stores[0].value, i) << n;
    EXPECT_FALSE(out[n].stores[0].known());
  }
}

// In somebody else's process: no memory is no reason to end it.
TEST(PlacementCacheWithoutMemoryTest, KnowsNothing) {
  FakeClock clock;
  // 2^54 bytes: more than any address space has.
  PlacementCache cache({.capacity = size_t{1} << 50, .seed = 7, .clock = &clock});
  {
    PlacementCache::Writer writer(&cache, absl::Seconds(10));
    for (uint32_t i = 0; i < 200; ++i) writer.Add(Name(i), In(1));
  }
  cache.Drop(Name(1));
  const ChunkName names[] = {Name(0), Name(199)};
  std::vector<Placement> out;
  cache.Get(names, &out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_FALSE(out[0].stores[0].known());
  EXPECT_FALSE(out[1].stores[0].known());
}

TEST(AvoidListTest, ForgivesAfterASecond) {
  FakeClock clock;
  AvoidList list;
  list.Add(LocalStore(1), clock.Mono());
  EXPECT_TRUE(list.Contains(LocalStore(1), clock.Mono()));
  EXPECT_FALSE(list.Contains(LocalStore(2), clock.Mono()));
  clock.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(list.Contains(LocalStore(1), clock.Mono()));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_FALSE(list.Contains(LocalStore(1), clock.Mono()));
}

}  // namespace
}  // namespace cistern
