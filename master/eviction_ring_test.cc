#include "master/eviction_ring.h"

#include <vector>

#include "base/test_util.h"

namespace cistern::master {
namespace {

MonoTime At(int64_t ms) { return MonoTime{absl::Milliseconds(ms)}; }

TEST(EvictionRingTest, PopsInOrderOfArrivalOverManyPages) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 5000; ++i)
    ring.PushYoung(EntryIndex(i), static_cast<uint16_t>(i), At(i));
  EXPECT_EQ(ring.size(), 5000u);
  for (uint32_t i = 0; i < 5000; ++i) {
    const EvictionRing::Item item = ring.PopOldest();
    ASSERT_EQ(item.entry.value, i);
    ASSERT_EQ(item.version_low, static_cast<uint16_t>(i));
    // Times are those of the first of 16: 0 to 15 ms early here.
    ASSERT_EQ(item.arrived, At(i - (i % 640) % 16));
  }
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.memory_bytes(), 0u);
}

TEST(EvictionRingTest, TakesLessThanSevenBytesAnItem) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 64'000; ++i) ring.PushYoung(EntryIndex(i), 0, At(0));
  EXPECT_LT(static_cast<double>(ring.memory_bytes()) / 64'000, 6.5);
}

TEST(EvictionRingTest, WhatIsPutBackIsOldestAgain) {
  EvictionRing ring;
  ring.PushYoung(EntryIndex(1), 10, At(100));
  ring.PushYoung(EntryIndex(2), 20, At(200));
  const EvictionRing::Item first = ring.PopOldest();
  ring.PushOld(first);
  ring.PushOld({EntryIndex(9), 90, At(50)});
  EXPECT_EQ(ring.PopOldest().entry, EntryIndex(9));
  EXPECT_EQ(ring.PopOldest().entry, EntryIndex(1));
  EXPECT_EQ(ring.PopOldest().entry, EntryIndex(2));
  EXPECT_TRUE(ring.empty());
}

TEST(EvictionRingTest, ManyPutBackKeepTheirOrder) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 2000; ++i) ring.PushYoung(EntryIndex(i), 0, At(i));
  std::vector<EvictionRing::Item> popped;
  for (int i = 0; i < 1500; ++i) popped.push_back(ring.PopOldest());
  for (auto it = popped.rbegin(); it != popped.rend(); ++it) ring.PushOld(*it);
  for (uint32_t i = 0; i < 2000; ++i) ASSERT_EQ(ring.PopOldest().entry.value, i);
}

TEST(EvictionRingTest, EndlessPushAndPopKeepsItSmall) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 100'000; ++i) {
    ring.PushYoung(EntryIndex(i), 0, At(i));
    if (ring.size() > 100) ring.PopOldest();
  }
  EXPECT_LE(ring.memory_bytes(), 2u * 4096);
}

TEST(EvictionRingTest, CompactionKeepsTheLiveOnesInOrder) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 10'000; ++i) ring.PushYoung(EntryIndex(i), 0, At(i));
  const auto live = [](const EvictionRing::Item& item) { return item.entry.value % 10 == 3; };
  const auto fetch = [](EntryIndex) {};
  for (int step = 0; step < 40; ++step) ring.CompactStep(live, fetch);
  EXPECT_EQ(ring.size(), 1000u);
  EXPECT_LE(ring.memory_bytes(), 3u * 4096) << "1,000 items fit two pages";
  for (uint32_t i = 3; i < 10'000; i += 10) ASSERT_EQ(ring.PopOldest().entry.value, i);
  EXPECT_TRUE(ring.empty());
}

TEST(EvictionRingTest, CompactionOfNothingButStaleItemsEmptiesIt) {
  EvictionRing ring;
  for (uint32_t i = 0; i < 2000; ++i) ring.PushYoung(EntryIndex(i), 0, At(i));
  for (int step = 0; step < 4; ++step) {
    ring.CompactStep([](const EvictionRing::Item&) { return false; }, [](EntryIndex) {});
  }
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.memory_bytes(), 0u);
  ring.PushYoung(EntryIndex(7), 0, At(1));
  EXPECT_EQ(ring.Oldest().entry, EntryIndex(7));
}

}  // namespace
}  // namespace cistern::master
