#include "master/in_progress_table.h"

#include <cstring>

#include "base/test_util.h"

namespace cistern::master {
namespace {

MonoTime At(int64_t s) { return MonoTime{absl::Seconds(s)}; }

ChunkName Chunk(uint8_t n, uint16_t shard = 0) {
  ChunkName name;
  name.id.bytes[0] = n;
  name.shard = Shard(shard);
  return name;
}

InProgressTable::Placement In(uint16_t store, uint8_t operation, uint32_t length = 5000) {
  InProgressTable::Placement p;
  p.operation.bytes[0] = operation;
  p.store = StoreIndex(store);
  p.length = length;
  return p;
}

TEST(InProgressTableTest, SameOperationFindsItsPlacementUntilTimeIsUp) {
  InProgressTable table({absl::Seconds(10), 100});
  ASSERT_TRUE(table.Add(Chunk(1), In(3, 77), At(0)));
  ASSERT_NE(table.Find(Chunk(1), At(9)), nullptr);
  EXPECT_EQ(table.Find(Chunk(1), At(9))->store, StoreIndex(3));
  EXPECT_EQ(table.Find(Chunk(1), At(9))->operation.bytes[0], 77);
  EXPECT_EQ(table.Find(Chunk(1), At(10)), nullptr);
  EXPECT_EQ(table.Find(Chunk(1, 1), At(9)), nullptr) << "another shard is another chunk";
}

TEST(InProgressTableTest, BytesCountAsWholeExtentsUntilReported) {
  InProgressTable table({absl::Seconds(10), 100});
  table.Add(Chunk(1), In(3, 1, 5000), At(0));   // 8,192 bytes of extent
  table.Add(Chunk(2), In(3, 1, 4096), At(0));   // 4,096
  table.Add(Chunk(3), In(0, 1, 65536), At(0));  // 65,536
  EXPECT_EQ(table.placed_bytes(StoreIndex(3)), 12'288u);
  EXPECT_EQ(table.placed_chunks(StoreIndex(3)), 2u);
  table.End(Chunk(1));
  table.End(Chunk(1));
  EXPECT_EQ(table.placed_bytes(StoreIndex(3)), 4096u);
  table.Expire(At(10), 100);
  EXPECT_EQ(table.placed_bytes(StoreIndex(3)), 0u);
  EXPECT_EQ(table.placed_bytes(StoreIndex(0)), 0u);
  EXPECT_EQ(table.placed_bytes(StoreIndex(500)), 0u);
  EXPECT_EQ(table.size(), 0u);
}

TEST(InProgressTableTest, FullTableRefuses) {
  InProgressTable table({absl::Seconds(10), 2});
  EXPECT_TRUE(table.Add(Chunk(1), In(0, 1), At(0)));
  EXPECT_TRUE(table.Add(Chunk(2), In(0, 1), At(0)));
  EXPECT_FALSE(table.Add(Chunk(3), In(0, 1), At(0)));
  table.End(Chunk(1));
  EXPECT_TRUE(table.Add(Chunk(3), In(0, 1), At(1)));
}

TEST(InProgressTableTest, NewPlacementOfAChunkHasItsOwnTime) {
  InProgressTable table({absl::Seconds(10), 100});
  table.Add(Chunk(1), In(0, 1), At(0));
  table.Add(Chunk(1), In(1, 2), At(5));
  table.Expire(At(10), 100);
  ASSERT_NE(table.Find(Chunk(1), At(14)), nullptr) << "the first one's end is not the second's";
  EXPECT_EQ(table.Find(Chunk(1), At(14))->store, StoreIndex(1));
  EXPECT_EQ(table.placed_bytes(StoreIndex(0)), 0u);
  table.Expire(At(15), 100);
  EXPECT_EQ(table.size(), 0u);
}

TEST(InProgressTableTest, ExpireDoesNotDoMoreThanItMay) {
  InProgressTable table({absl::Seconds(10), 100});
  for (uint8_t n = 0; n < 5; ++n) table.Add(Chunk(n), In(0, 1), At(0));
  EXPECT_TRUE(table.Expire(At(20), 3));
  EXPECT_EQ(table.size(), 2u);
  EXPECT_FALSE(table.Expire(At(20), 3));
}

// Growing moves a part's entries under the core's lock: never those of the whole table.
TEST(InProgressTableTest, PartsStaySmallHoweverManyThereAre) {
  constexpr uint32_t kEntries = 20'000;
  InProgressTable table({absl::Seconds(10), kEntries});
  for (uint32_t n = 0; n < kEntries; ++n) {
    ChunkName name;
    std::memcpy(name.id.bytes.data(), &n, sizeof(n));
    ASSERT_TRUE(table.Add(name, In(0, 1), At(0)));
    ASSERT_NE(table.Find(name, At(1)), nullptr);
  }
  EXPECT_EQ(table.size(), kEntries);
  EXPECT_LE(table.largest_part(), 2'048u);
  EXPECT_EQ(table.placed_chunks(StoreIndex(0)), kEntries);
  while (table.Expire(At(10), 1'000)) {
  }
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.largest_part(), 0u);
}

}  // namespace
}  // namespace cistern::master
