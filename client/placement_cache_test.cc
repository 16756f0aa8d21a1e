#include "client/placement_cache.h"

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
  FakeClock clock_;
  PlacementCache cache_{{.capacity = 1024, .seed = 7, .clock = &clock_}};
};

TEST_F(PlacementCacheTest, RemembersBothReplicasByIdAndShard) {
  cache_.Put(Name(1), In(3, 4), absl::Seconds(10));
  cache_.Put(Name(1, 1), In(5), absl::Seconds(10));
  ASSERT_TRUE(cache_.Get(Name(1)).has_value());
  EXPECT_EQ(cache_.Get(Name(1))->stores[0], LocalStore(3));
  EXPECT_EQ(cache_.Get(Name(1))->stores[1], LocalStore(4));
  EXPECT_EQ(cache_.Get(Name(1, 1))->stores[0], LocalStore(5));
  EXPECT_FALSE(cache_.Get(Name(1, 1))->stores[1].known());
  EXPECT_FALSE(cache_.Get(Name(2)).has_value());
}

TEST_F(PlacementCacheTest, EntriesEnd) {
  cache_.Put(Name(1), In(3), absl::Seconds(10));
  clock_.Advance(absl::Milliseconds(9'800));
  EXPECT_TRUE(cache_.Get(Name(1)).has_value());
  clock_.Advance(absl::Milliseconds(300));
  EXPECT_FALSE(cache_.Get(Name(1)).has_value());
}

TEST_F(PlacementCacheTest, ShorterLifetimeDoesNotCutALongerOne) {
  cache_.Put(Name(1), In(3), absl::Seconds(60));
  cache_.Put(Name(1), In(4), absl::Seconds(10));
  clock_.Advance(absl::Seconds(30));
  ASSERT_TRUE(cache_.Get(Name(1)).has_value());
  EXPECT_EQ(cache_.Get(Name(1))->stores[0], LocalStore(4));
}

TEST_F(PlacementCacheTest, DropForgets) {
  cache_.Put(Name(1), In(3), absl::Seconds(10));
  cache_.Drop(Name(1));
  EXPECT_FALSE(cache_.Get(Name(1)).has_value());
}

TEST_F(PlacementCacheTest, StaysBoundedAndKeepsTheLatest) {
  // 16 times its capacity: each set sees 128 entries on average, later ones ending later.
  int kept = 0;
  for (uint32_t i = 0; i < 16'384; ++i) {
    cache_.Put(Name(i), In(1), absl::Minutes(10));
    clock_.Advance(absl::Milliseconds(10));
  }
  for (uint32_t i = 0; i < 16'384; ++i) kept += cache_.Get(Name(i)).has_value() ? 1 : 0;
  EXPECT_EQ(kept, 1024);
  for (uint32_t i = 16'384 - 64; i < 16'384; ++i) EXPECT_TRUE(cache_.Get(Name(i)).has_value());
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
