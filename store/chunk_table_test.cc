#include "store/chunk_table.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

ChunkName Name(uint64_t n, uint16_t shard = 0) {
  ChunkName name;
  std::memcpy(name.id.bytes.data(), &n, 8);
  name.shard = Shard(shard);
  return name;
}

class ChunkTableTest : public testing::Test {
 protected:
  void Enter(ChunkTable& table, uint32_t entry, const ChunkName& name,
             ChunkEntry::State state = ChunkEntry::State::kCommitted) {
    table.at(entry).set_name(name, 0);
    table.at(entry).state = state;
    table.Link(entry);
  }
};

TEST_F(ChunkTableTest, EntryKeepsNamespaceAndVersionApart) {
  ChunkEntry e{};
  e.set_name(Name(1, 4095), 0xABCDEF);
  e.set_version(Version(Version::kMax));
  EXPECT_EQ(e.namespace_index(), 0xABCDEFu);
  EXPECT_EQ(e.version(), Version(Version::kMax));
  EXPECT_EQ(e.name().shard, Shard(4095));
  e.set_version(Version(1));
  EXPECT_EQ(e.namespace_index(), 0xABCDEFu);
  EXPECT_EQ(e.version(), Version(1));
}

TEST_F(ChunkTableTest, WritingAndCommittedEntriesOfOneNameAreFoundApart) {
  ChunkTable table(4, 1);
  Enter(table, 2, Name(7), ChunkEntry::State::kWriting);
  Enter(table, 3, Name(7));
  EXPECT_EQ(table.Find(Name(7), ChunkEntry::State::kWriting), 2u);
  EXPECT_EQ(table.Find(Name(7), ChunkEntry::State::kCommitted), 3u);
  EXPECT_EQ(table.Find(Name(7, 1), ChunkEntry::State::kCommitted), ChunkTable::kNone);
  table.Unlink(2);
  EXPECT_EQ(table.Find(Name(7), ChunkEntry::State::kWriting), ChunkTable::kNone);
  EXPECT_EQ(table.Find(Name(7), ChunkEntry::State::kCommitted), 3u);
}

TEST_F(ChunkTableTest, ArrivalListKeepsOrderThroughRemovals) {
  ChunkTable table(4, 1);
  for (uint32_t e = 0; e < 4; ++e) table.PushYoungest(e);
  table.RemoveFromList(1);  // middle
  table.RemoveFromList(3);  // youngest
  table.PushYoungest(1);
  std::vector<uint32_t> order;
  while (table.oldest() != ChunkTable::kNone) {
    order.push_back(table.oldest());
    table.RemoveFromList(table.oldest());
  }
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 2, 1}));
  EXPECT_EQ(table.listed_count(), 0u);
}

TEST_F(ChunkTableTest, AgreesWithAMapOverRandomOperations) {
  std::mt19937 random(5);
  constexpr uint32_t kCapacity = 257;
  ChunkTable table(kCapacity, 99);
  std::map<uint64_t, uint32_t> model;
  std::vector<uint32_t> free;
  for (uint32_t i = 0; i < kCapacity; ++i) free.push_back(i);
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t key = random() % 500;
    const auto it = model.find(key);
    ASSERT_EQ(table.Find(Name(key), ChunkEntry::State::kCommitted),
              it == model.end() ? ChunkTable::kNone : it->second);
    if (it != model.end()) {
      table.Unlink(it->second);
      free.push_back(it->second);
      model.erase(it);
    } else if (!free.empty()) {
      Enter(table, free.back(), Name(key));
      model[key] = free.back();
      free.pop_back();
    }
  }
}

TEST_F(ChunkTableTest, CraftedIdsDoNotShareAChainUnderAnotherSeed) {
  // Ids that differ in one word only, as a caller could choose them, spread like random ones: with
  // 4,096 ids in 4,096 buckets some 1,507 buckets stay empty (4,096 / e).
  constexpr uint32_t kCount = 4096;
  for (const uint64_t seed : {uint64_t{0x1234'5678'9ABC'DEF0}, uint64_t{0xFEDC'BA98'7654'3211}}) {
    ChunkTable table(kCount, seed);
    for (uint32_t i = 0; i < kCount; ++i) Enter(table, i, Name(uint64_t{i} << 32));
    // The chain an entry stands in: follow it to its end.
    uint32_t longest = 0;
    for (uint32_t i = 0; i < kCount; ++i) {
      uint32_t length = 1;
      for (uint32_t next = table.at(i).hash_next; next != 0; next = table.at(next - 1).hash_next) {
        ++length;
      }
      longest = std::max(longest, length);
    }
    EXPECT_LE(longest, 12u) << seed;
  }
}

TEST_F(ChunkTableTest, GrowsWhileItIsUsed) {
  // A model beside it: linked names by entry. Every step of the rehash is followed by changes.
  ChunkTable table(100, 42);
  std::map<uint64_t, uint32_t> model;
  std::minstd_rand random(7);
  uint32_t capacity = 100;
  std::vector<uint32_t> free;
  const auto add_free = [&](uint32_t from, uint32_t to) {
    for (uint32_t e = from; e < to; ++e) free.push_back(e);
  };
  add_free(0, capacity);
  uint64_t next_name = 0;
  const auto change = [&] {
    if (!free.empty() && (model.empty() || random() % 3 != 0)) {
      Enter(table, free.back(), Name(next_name));
      table.PushYoungest(free.back());
      model[next_name++] = free.back();
      free.pop_back();
      return;
    }
    const auto victim = std::next(model.begin(), random() % model.size());
    table.Unlink(victim->second);
    table.RemoveFromList(victim->second);
    table.at(victim->second).state = ChunkEntry::State::kFree;
    free.push_back(victim->second);
    model.erase(victim);
  };
  for (int grown = 0; grown < 4; ++grown) {
    for (int i = 0; i < 500; ++i) change();
    table.Grow(capacity * 3);
    EXPECT_EQ(table.capacity(), capacity * 3);
    add_free(capacity, capacity * 3);
    capacity *= 3;
    bool more = true;
    while (more) {
      more = table.Rehash(3);
      change();
      for (const auto& [name, entry] : model) {
        ASSERT_EQ(table.Find(Name(name), ChunkEntry::State::kCommitted), entry) << name;
      }
    }
    EXPECT_EQ(table.listed_count(), model.size());
  }
  for (uint64_t name = 0; name < next_name; ++name) {
    if (!model.contains(name)) {
      ASSERT_EQ(table.Find(Name(name), ChunkEntry::State::kCommitted), ChunkTable::kNone);
    }
  }
}

TEST_F(ChunkTableTest, WalkDuringARehashSeesEachNameOnce) {
  constexpr uint32_t kCount = 64;
  ChunkTable table(kCount, 42);
  for (uint32_t e = 0; e < kCount; ++e) Enter(table, e, Name(e));
  const auto walk = [&](auto between) {
    std::map<uint32_t, int> seen;
    for (size_t bucket = 0; bucket < table.bucket_count(); ++bucket) {
      table.ForEachInBucket(bucket, [&](uint32_t entry) { ++seen[entry]; });
      between();
    }
    return seen;
  };
  std::map<uint32_t, int> each_once;
  for (uint32_t e = 0; e < kCount; ++e) each_once[e] = 1;
  table.Grow(kCount * 4);
  EXPECT_EQ(walk([] {}), each_once) << "nothing is moved yet";
  ASSERT_TRUE(table.Rehash(20));
  EXPECT_EQ(walk([] {}), each_once) << "some are";
  int step = 0;
  EXPECT_EQ(walk([&] {
              if (++step % 4 == 0) table.Rehash(1);
            }),
            each_once)
      << "steps between buckets";
  EXPECT_FALSE(table.Rehash(1)) << "the walk has 256 buckets, so all 64 have been moved";
  EXPECT_EQ(walk([] {}), each_once);
}

TEST_F(ChunkTableTest, WalkThatBeganBeforeAGrowSeesEachName) {
  constexpr uint32_t kCount = 64;
  ChunkTable table(kCount, 42);
  for (uint32_t e = 0; e < kCount; ++e) Enter(table, e, Name(e));
  std::map<uint32_t, int> seen;
  for (size_t bucket = 0; bucket < table.bucket_count(); ++bucket) {
    table.ForEachInBucket(bucket, [&](uint32_t entry) { ++seen[entry]; });
    if (bucket == 20) table.Grow(kCount * 4);
    if (bucket > 30) table.Rehash(1);
  }
  EXPECT_EQ(seen.size(), kCount);
}

TEST_F(ChunkTableTest, DiscardedEntriesAreZeroAndNeighboursStay) {
  ChunkTable table(10'000, 1);
  for (uint32_t e = 0; e < 10'000; ++e) table.at(e).length = e + 1;
  table.Discard(1'000, 5'000);
  EXPECT_EQ(table.at(999).length, 1'000u);
  EXPECT_EQ(table.at(3'000).length, 0u);
  EXPECT_EQ(table.at(6'000).length, 6'001u);
}

}  // namespace
}  // namespace cistern::store
