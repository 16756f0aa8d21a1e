#include "master/index.h"

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/test_util.h"

namespace cistern::master {
namespace {

KeyId Id(uint64_t n) {
  KeyId id;
  id.bytes.fill(0x11);
  std::memcpy(id.bytes.data(), &n, 8);
  return id;
}

ReplicaSlot In(uint16_t store, uint64_t version) {
  return ReplicaSlot::Make(StoreIndex(store), kDram, false, Version(version));
}

EntryIndex Add(Index& index, uint64_t n, uint16_t shard = 0) {
  return index.Insert(Id(n), Shard(shard), NamespaceIndex(5), 65536, 0, In(1, n));
}

// Deterministic numbers: xorshift64.
uint64_t Next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

TEST(IndexEntryTest, LayoutIsWhatTheHeaderSays) {
  Index index({100, 1});
  const EntryIndex e = index.Insert(
      Id(0x0807060504030201), Shard(0xABC), NamespaceIndex(0x12345), 0x00010000, 0x5F5E1000,
      ReplicaSlot::Make(StoreIndex(0x0203), kDram | kSsd, true, Version(0xA1B2C3D4E5)));
  index.at(e).heat.Touch(7);
  index.at(e).heat.AddLease(/*until_tick=*/0x112233, /*now_tick=*/0x112230);
  const auto* b = reinterpret_cast<const uint8_t*>(&index.at(e));
  const uint8_t id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 17, 17, 17, 17, 17, 17, 17, 17};
  EXPECT_EQ(std::memcmp(b, id, 16), 0);
  // Store 0x0203, then tiers 3 | parity 8 = 0x0B, then the version, all little-endian.
  const uint8_t replica[8] = {0x03, 0x02, 0x0B, 0xE5, 0xD4, 0xC3, 0xB2, 0xA1};
  EXPECT_EQ(std::memcmp(b + 16, replica, 8), 0);
  EXPECT_EQ(b[24], 0xFF);  // no second replica
  EXPECT_EQ(b[25], 0xFF);
  // touched 1 | 0x112233 << 1 | 1 lease << 25 | tick 7 << 31 | frequency 1 << 55:
  //   low word  0x80000000 | 0x02000000 | 0x224466 | 1, high word 0x00800003
  const uint8_t heat[8] = {0x67, 0x44, 0x22, 0x82, 0x03, 0x00, 0x80, 0x00};
  EXPECT_EQ(std::memcmp(b + 32, heat, 8), 0);
  const uint8_t rest[16] = {0,    0,    1,    0,    0x00, 0x10, 0x5E, 0x5F,
                            0xBC, 0x5A, 0x34, 0x12, 0xFF, 0xFF, 0xFF, 0xFF};
  EXPECT_EQ(std::memcmp(b + 40, rest, 16), 0);
}

TEST(HeatTest, TouchedAndPinAreApartFromLeases) {
  Heat heat;
  EXPECT_FALSE(heat.touched());
  heat.Touch(100);
  heat.Touch(250);
  heat.SetPin(2);
  EXPECT_TRUE(heat.touched());
  EXPECT_TRUE(heat.pinned());
  EXPECT_EQ(heat.frequency(), 2u);
  EXPECT_EQ(heat.access_tick(), 250u);
  heat.ClearTouched();
  EXPECT_FALSE(heat.touched());
  EXPECT_TRUE(heat.pinned());
  EXPECT_FALSE(heat.leased(250));
  for (int i = 0; i < 20; ++i) heat.Touch(251);
  EXPECT_EQ(heat.frequency(), 15u) << "saturates";
}

TEST(HeatTest, LeaseEndsAtItsTick) {
  Heat heat;
  heat.AddLease(1100, 1000);
  EXPECT_EQ(heat.lease_ticks_left(1000), 100u);
  EXPECT_TRUE(heat.leased(1099));
  EXPECT_FALSE(heat.leased(1100));
}

TEST(HeatTest, ShorterLeaseNeverCutsALongerOne) {
  Heat heat;
  heat.AddLease(1100, 1000);
  heat.AddLease(1050, 1000);
  EXPECT_EQ(heat.lease_ticks_left(1000), 100u);
  EXPECT_EQ(heat.leases(), 2u);
}

TEST(HeatTest, DroppingTheOnlyLeaseFreesAtOnceAndOneOfTwoDoesNot) {
  Heat heat;
  heat.AddLease(1100, 1000);
  heat.AddLease(1200, 1010);
  heat.DropLease(1020);
  EXPECT_EQ(heat.lease_ticks_left(1020), 180u) << "to the latest time among all";
  heat.DropLease(1020);
  EXPECT_FALSE(heat.leased(1020));
}

TEST(HeatTest, LeaseAfterAllHaveRunOutStartsCountingAnew) {
  Heat heat;
  heat.AddLease(1100, 1000);
  heat.AddLease(1100, 1000);
  heat.AddLease(1300, 1200);  // the two before are over
  EXPECT_EQ(heat.leases(), 1u);
  heat.DropLease(1250);
  EXPECT_FALSE(heat.leased(1250));
}

TEST(HeatTest, ManyLeasesSaturateAndThenLastToTheirTime) {
  Heat heat;
  for (int i = 0; i < 70; ++i) heat.AddLease(1100, 1000);
  for (int i = 0; i < 70; ++i) heat.DropLease(1001);
  EXPECT_TRUE(heat.leased(1099));
  EXPECT_FALSE(heat.leased(1100));
}

TEST(HeatTest, TicksAreComparedOverTheWrap) {
  Heat heat;
  const uint32_t now = 0xFFFFF0;  // 16 ticks before 24 bits wrap
  heat.AddLease(now + 32, now);
  EXPECT_EQ(heat.lease_ticks_left(now), 32u);
  EXPECT_EQ(heat.lease_ticks_left(0x1000000 + 8), 8u);
  EXPECT_FALSE(heat.leased(0x1000000 + 16));
}

TEST(IndexTest, FindsByIdAndShard) {
  Index index({100, 42});
  const EntryIndex a = Add(index, 1, 0);
  const EntryIndex b = Add(index, 1, 3);
  EXPECT_EQ(index.Find(Id(1), Shard(0)), a);
  EXPECT_EQ(index.Find(Id(1), Shard(3)), b);
  EXPECT_TRUE(index.Find(Id(1), Shard(1)).none());
  EXPECT_TRUE(index.Find(Id(2), Shard(0)).none());
  EXPECT_EQ(index.at(b).ns(), NamespaceIndex(5));
  EXPECT_EQ(index.at(b).shard(), Shard(3));
}

TEST(IndexTest, ErasedNumberIsUsedAgain) {
  Index index({100, 42});
  const EntryIndex a = Add(index, 1);
  Add(index, 2);
  index.Erase(a);
  EXPECT_FALSE(index.InUse(a));
  EXPECT_TRUE(index.Find(Id(1), Shard(0)).none());
  EXPECT_EQ(Add(index, 3), a);
  EXPECT_EQ(index.entry_limit(), 2u);
  EXPECT_EQ(index.size(), 2u);
}

TEST(IndexTest, FullIndexGivesNone) {
  Index index({2, 42});
  EXPECT_FALSE(Add(index, 1).none());
  EXPECT_FALSE(Add(index, 2).none());
  EXPECT_TRUE(Add(index, 3).none());
  EXPECT_EQ(index.size(), 2u);
  index.Erase(index.Find(Id(1), Shard(0)));
  EXPECT_FALSE(Add(index, 3).none());
}

TEST(IndexTest, AgreesWithAMapOverARandomHistory) {
  Index index({1 << 20, 99});
  std::map<uint64_t, uint32_t> model;  // id -> entry
  uint64_t state = 0x1234567;
  for (int step = 0; step < 200'000; ++step) {
    const uint64_t n = Next(&state) % 30'000;
    auto it = model.find(n);
    if (it == model.end()) {
      model[n] = Add(index, n).value;
    } else if (Next(&state) % 3 == 0) {
      index.Erase(EntryIndex(it->second));
      model.erase(it);
    }
  }
  EXPECT_EQ(index.size(), model.size());
  std::set<uint32_t> seen;
  for (uint64_t n = 0; n < 30'000; ++n) {
    auto it = model.find(n);
    const uint32_t expected = it == model.end() ? EntryIndex::kNone : it->second;
    ASSERT_EQ(index.Find(Id(n), Shard(0)).value, expected) << n;
    if (it != model.end()) seen.insert(expected);
  }
  EXPECT_EQ(seen.size(), model.size()) << "no two chunks share an entry";
}

TEST(IndexTest, BatchFindsWhatSingleFindsDo) {
  Index index({1 << 20, 3});
  for (uint64_t n = 0; n < 10'000; n += 2) Add(index, n, static_cast<uint16_t>(n % 5));
  std::vector<KeyId> ids;
  std::vector<Shard> shards;
  for (uint64_t n = 0; n < 5'003; ++n) {
    ids.push_back(Id(n));
    shards.push_back(Shard(static_cast<uint16_t>(n % 5)));
  }
  std::vector<EntryIndex> out(ids.size());
  index.FindBatch(ids.size(), ids.data(), shards.data(), out.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(out[i], index.Find(ids[i], shards[i]));
    ASSERT_EQ(out[i].none(), i % 2 == 1);
  }
}

TEST(IndexTest, IterationByNumberMeetsEveryEntryOnce) {
  Index index({1 << 20, 3});
  for (uint64_t n = 0; n < 1000; ++n) Add(index, n);
  for (uint64_t n = 0; n < 1000; n += 3) index.Erase(index.Find(Id(n), Shard(0)));
  std::set<uint64_t> met;
  for (uint32_t e = 0; e < index.entry_limit(); ++e) {
    if (index.InUse(EntryIndex(e))) met.insert(index.at(EntryIndex(e)).id.word(0));
  }
  EXPECT_EQ(met.size(), 666u);  // 1000 less 0, 3, ..., 999
  EXPECT_FALSE(met.contains(999));
  EXPECT_TRUE(met.contains(998));
}

TEST(IndexTest, HoldsFiveReplicasAndRefusesTheSixth) {
  Index index({100, 1});
  const EntryIndex e = Add(index, 1);  // in store 1
  for (uint16_t store = 2; store <= 5; ++store) EXPECT_TRUE(index.AddReplica(e, In(store, store)));
  EXPECT_FALSE(index.AddReplica(e, In(6, 6)));
  std::vector<uint16_t> stores;
  index.ForEachReplica(e, [&](const ReplicaSlot& slot) {
    stores.push_back(slot.store().value);
    return true;
  });
  EXPECT_EQ(stores, (std::vector<uint16_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(index.FindReplica(e, StoreIndex(4))->version(), Version(4));
  EXPECT_EQ(index.FindReplica(e, StoreIndex(6)), nullptr);
}

TEST(IndexTest, LastReplicaTakesTheEntryWithIt) {
  Index index({100, 1});
  const EntryIndex e = Add(index, 1);
  for (uint16_t store = 2; store <= 5; ++store) index.AddReplica(e, In(store, store));
  for (uint16_t store : {1, 3, 5, 2}) {
    EXPECT_FALSE(index.RemoveReplica(e, StoreIndex(store)));
    EXPECT_EQ(index.FindReplica(e, StoreIndex(store)), nullptr);
    EXPECT_NE(index.FindReplica(e, StoreIndex(4)), nullptr);
  }
  EXPECT_TRUE(index.RemoveReplica(e, StoreIndex(4)));
  EXPECT_EQ(index.size(), 0u);
  EXPECT_TRUE(index.Find(Id(1), Shard(0)).none());
}

// Entries 56, tables 8 / 0.85 to 8 / 0.68 = 9.4 to 11.8 bytes, 16 bytes for each of 16,384 tables.
TEST(IndexTest, MemoryRisesSmoothlyBelow70BytesAChunk) {
  Index index({1 << 21, 7});
  double worst_step = 0;
  uint64_t before = 0;
  uint64_t state = 5;
  for (uint64_t n = 0; n < 1'000'000; ++n) {
    Add(index, Next(&state));
    if (n < 500'000 || n % 10'000 != 0) continue;
    const uint64_t bytes = index.memory_bytes();
    EXPECT_LT(static_cast<double>(bytes) / static_cast<double>(n), 70.0);
    if (before != 0) {
      worst_step = std::max(worst_step, static_cast<double>(bytes) / static_cast<double>(before));
    }
    before = bytes;
  }
  EXPECT_LT(worst_step, 1.05) << "no doubling: 10,000 chunks more are 2 % more";
}

TEST(ReplicaSlotTest, EvictingTiersAreNotReadable) {
  ReplicaSlot slot = ReplicaSlot::Make(StoreIndex(9), kDram | kSsd, true, Version(77));
  slot.set_evicting(kDram);
  EXPECT_EQ(slot.readable_tiers(), kSsd);
  EXPECT_EQ(slot.tiers(), kDram | kSsd);
  EXPECT_EQ(slot.version(), Version(77));
  EXPECT_TRUE(slot.parity());
  slot.set_parity(false);
  EXPECT_FALSE(slot.parity());
  EXPECT_EQ(slot.evicting(), kDram);
}

}  // namespace
}  // namespace cistern::master
