// The core: who is evicted, and when.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/evictor.h"
#include "master/pool_state.h"
#include "master/session_call.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;
constexpr uint64_t kChunk = 65536;

TEST(EvictionTest, OldestGoFirstDownToTheLowWatermark) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 95, 1)));
  EXPECT_TRUE(t.Evicted(s).empty()) << "95 of 100 is not above 0.95";
  ASSERT_OK(t.SendRecords(s, 96, Puts(96, 1, 96)));
  EXPECT_EQ(t.Evicted(s), (std::vector{TestId(1), TestId(2), TestId(3), TestId(4)}));
}

TEST(EvictionTest, TouchedChunkIsSparedOnce) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 95, 1)));
  const wire::LookupReply read = t.Lookup({2});
  t.Release(read.lease_id());
  ASSERT_OK(t.SendRecords(s, 96, Puts(96, 1, 96)));
  EXPECT_EQ(t.Evicted(s), (std::vector{TestId(1), TestId(3), TestId(4), TestId(5)}));
}

TEST(EvictionTest, CommandedChunksCountAsGoneAndAreNotOffered) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 96, 1)));
  EXPECT_EQ(t.Evicted(s).size(), 4u);
  for (int i = 0; i < 5; ++i) t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_TRUE(t.Evicted(s).empty()) << "not again before they are reported";
  EXPECT_EQ(t.Lookup({1}).leading_run(), 0u);
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 96u) << "only records change the index";
  ASSERT_OK(t.SendRecords(s, 97, {Gone(1, 1), Gone(2, 2), Gone(3, 3), Gone(4, 4)}));
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 92u);
  EXPECT_EQ(t.core().Stores(t.now)[0].evicting_bytes, 0u);
  EXPECT_EQ(t.core().Stores(t.now)[0].removed_by_cause[wire::CAUSE_EVICT_WATERMARK], 4u);
}

TEST(EvictionTest, WhatAStoreKeptIsTakenBackWhenItAcknowledgesTheCommand) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 96, 1)));
  ASSERT_EQ(t.Evicted(s).size(), 4u);
  // The store dropped 1 and 2 only: their records are 97 and 98, so all is known at 99.
  ASSERT_OK(t.SendHeartbeat(s, 100 * kChunk, 94 * kChunk, /*record_seq=*/99, /*acked_command=*/1));
  EXPECT_EQ(t.Lookup({3}).leading_run(), 0u) << "the records before the heartbeat are not here yet";
  ASSERT_OK(t.SendRecords(s, 97, {Gone(1, 1), Gone(2, 2)}));
  EXPECT_EQ(t.Lookup({3}).leading_run(), 1u);
  EXPECT_EQ(t.core().Stores(t.now)[0].evicting_bytes, 0u);
}

TEST(EvictionTest, LeadingRunIsShortenedByWhatWasEvicted) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  // A batch of three comes last key first.
  ASSERT_OK(t.SendRecords(
      s, 1, {{.id = 3, .version = 1}, {.id = 2, .version = 2}, {.id = 1, .version = 3}}));
  wire::StoreMessage need;
  need.mutable_need_bytes()->set_bytes(kChunk);
  ASSERT_OK(t.Send(s, need));
  EXPECT_EQ(t.Evicted(s), std::vector{TestId(3)}) << "the suffix leaves before its prefix";
  EXPECT_EQ(t.Lookup({1, 2, 3}).leading_run(), 2u);
}

TEST(EvictionTest, HeadersRunOutBeforeBytes) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  wire::StoreMessage message;
  wire::TierUsage& tier = *message.mutable_heartbeat()->add_tiers();
  tier.set_tier(wire::TIER_DRAM);
  tier.set_capacity_bytes(64 * kMiB);
  tier.set_header_count(100);
  ASSERT_OK(t.Send(s, message));
  std::vector<TestRecord> small = Puts(1, 96, 1);
  for (TestRecord& r : small) r.length = 4096;
  ASSERT_OK(t.SendRecords(s, 1, small));
  EXPECT_EQ(t.Evicted(s).size(), 4u);
}

TEST(EvictionTest, NewMasterOfAnOldPoolWaitsForTheLastOnesLeases) {
  TestPool t;
  t.RestartMaster();
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 97, 1)));
  EXPECT_TRUE(t.Evicted(s).empty());
  wire::StoreMessage need;
  need.mutable_need_bytes()->set_bytes(kChunk);
  ASSERT_OK(t.Send(s, need));
  EXPECT_EQ(t.Evicted(s).size(), 1u) << "a store that asks is answered";
  t.now = t.now + absl::Seconds(60);
  ASSERT_OK(t.SendHeartbeat(s, 100 * kChunk, 97 * kChunk, 98, 0));
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.Evicted(s).size(), 4u) << "97 - 1 is above 95: down to 92";
}

TEST(EvictionTest, LeasedChunksAreNeverTaken) {
  MasterOptions options;
  options.lease_share = 0.9;
  TestPool t(options);
  const SessionId s = t.Connect(0, 100 * kChunk);
  std::vector<uint64_t> ids;
  for (uint64_t i = 1; i <= 90; ++i) ids.push_back(i);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 90, 1)));
  EXPECT_EQ(t.Lookup(ids).leased_keys(), 90u);
  wire::StoreMessage need;
  need.mutable_need_bytes()->set_bytes(50 * kChunk);
  ASSERT_OK(t.Send(s, need));
  EXPECT_TRUE(t.Evicted(s).empty());
}

// However much there is to look at, a step looks at a bounded part of it: the lock is held for one
// step at a time. Here nothing can go before everything was looked at.
TEST(EvictionTest, ALongSearchForVictimsIsMadeInSteps) {
  constexpr uint64_t kChunks = 5'000;
  TestPool t;
  const SessionId s = t.Connect(0, 2 * kChunks * kChunk);
  for (uint64_t first = 1; first <= kChunks; first += 1'000) {
    ASSERT_OK(t.SendRecords(s, first, Puts(first, 1'000, first)));
    std::vector<uint64_t> ids;
    for (uint64_t i = first; i < first + 1'000; ++i) ids.push_back(i);
    t.Release(t.Lookup(ids).lease_id());  // touched
  }
  while (t.core().BackgroundStep(t.now)) {  // long leases are taken off there
  }
  Store& store = *t.pool().stores.at(StoreIndex(0));
  store.dram().capacity_bytes = kChunks * kChunk;  // 5,000 are above 4,750: down to 4,600
  size_t told = 0, looks = 0, steps = 0;
  HuntStep step;
  do {
    step = EvictToWatermark(t.pool(), store, t.now);
    EXPECT_LE(step.looks, kMaxLooks);
    EXPECT_LE(step.told, kMaxVictims);
    told += step.told;
    looks += step.looks;
  } while (step.more && ++steps < 1'000);
  // 4 x 128 + 1,024 looks spare what was touched; then touched ones are taken: 128 of those behind
  // the 1,536 that were looked at. The same again, and 4,744 are not above the high watermark.
  EXPECT_EQ(told, 256u);
  const std::vector<KeyId> evicted = t.Evicted(s);
  ASSERT_EQ(evicted.size(), 256u);
  EXPECT_EQ(evicted.front(), TestId(1'537));
  EXPECT_EQ(evicted.back(), TestId(3'328));
  EXPECT_EQ(looks, 2 * (1'536u + 128u));
}

TEST(EvictionTest, AStoreWhoseChunksCannotGoIsGivenUpInSteps) {
  constexpr uint64_t kChunks = 5'000;
  MasterOptions options;
  options.lease_share = 1.0;
  TestPool t(options);
  const SessionId s = t.Connect(0, kChunks * kChunk);
  std::vector<uint64_t> ids;
  for (uint64_t i = 1; i <= kChunks; ++i) ids.push_back(i);
  for (uint64_t first = 1; first <= 4'000; first += 1'000) {
    ASSERT_OK(t.SendRecords(s, first, Puts(first, 1'000, first)));
  }
  ids.resize(4'000);
  ASSERT_EQ(t.Lookup(ids).leased_keys(), 4'000u);
  Store& store = *t.pool().stores.at(StoreIndex(0));
  store.dram().capacity_bytes = 4'000 * kChunk + kChunk / 2;
  size_t looks = 0;
  HuntStep step;
  do {
    step = EvictToWatermark(t.pool(), store, t.now);
    EXPECT_LE(step.looks, kMaxLooks);
    EXPECT_EQ(step.told, 0u);
    looks += step.looks;
  } while (step.more);
  // Twice the patience that 128 of 320 victims have.
  EXPECT_EQ(looks, 2u * (4 * 128 + 1'024));
  // A batch that finds it full looks once, not for each of its chunks, and is refused.
  std::vector<uint64_t> absent;
  for (uint64_t i = 1; i <= 300; ++i) absent.push_back(10'000 + i);
  const wire::PlaceReply reply = t.Place(absent);
  EXPECT_EQ(reply.refused(), std::string(37, '\xFF') + '\x0F');
  EXPECT_TRUE(t.Evicted(s).empty());
}

// Two thousand leases end at once; a step ends a bounded part of them.
TEST(EvictionTest, LeasesThatRunOutTogetherAreEndedInSteps) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(t.Lookup({1}, 1'000).leased_keys(), 1u) << i;
  const uint32_t before = t.pool().leases.live();
  ASSERT_EQ(before, 300u);
  t.now = t.now + absl::Seconds(2);
  uint32_t last = before;
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_GE(t.pool().leases.live(), last - kSliceKeys);
  do {
    last = t.pool().leases.live();
    ASSERT_LT(last, before);
    (void)t.core().BackgroundStep(t.now);
    EXPECT_GE(t.pool().leases.live() + kSliceKeys, last);
  } while (t.pool().leases.live() > 0);
}

// A heartbeat that tells the fate of many commands, and the end of a session that had many.
TEST(EvictionTest, ManyVictimsAreTakenBackInSteps) {
  constexpr uint64_t kChunks = 20'000;
  TestPool t;
  const SessionId s = t.Connect(0, kChunks * kChunk);
  for (uint64_t first = 1; first <= 19'000; first += 1'000) {
    ASSERT_OK(t.SendRecords(s, first, Puts(first, 1'000, first)));
  }
  Store& store = *t.pool().stores.at(StoreIndex(0));
  const auto ask = [&] {
    wire::StoreMessage need;
    need.mutable_need_bytes()->set_bytes(1'000 * kChunk);
    ASSERT_OK(t.Send(s, need));
    EXPECT_EQ(store.dram().evicting_chunks, 1'000u);
  };
  ask();
  t.Evicted(s);
  // The store has kept them all: eight commands of 128 at most.
  wire::StoreMessage message;
  message.mutable_heartbeat()->set_record_seq(19'001);
  message.mutable_heartbeat()->set_acked_command(8);
  SessionCall call(s, message);
  uint64_t left = 1'000;
  int steps = 1;
  for (; !call.Step(t.core(), t.now); ++steps) {
    EXPECT_GE(store.dram().evicting_chunks + kSliceKeys, left);
    left = store.dram().evicting_chunks;
  }
  ASSERT_OK(call.status());
  EXPECT_EQ(store.dram().evicting_chunks, 0u);
  EXPECT_GE(steps, 1'000 / static_cast<int>(kSliceKeys));
  ask();
  t.core().OnSessionClosed(s, t.now);
  left = store.dram().evicting_chunks;
  EXPECT_GE(left, 1'000 - kSliceKeys);
  while (t.core().BackgroundStep(t.now)) {
    EXPECT_GE(store.dram().evicting_chunks + kSliceKeys, left);
    left = store.dram().evicting_chunks;
  }
  EXPECT_EQ(store.dram().evicting_chunks, 0u);
}

// A store that comes back at once, or opens another session while one is open: it is not let in
// before what its last one was told is taken back, and that takes no hold of more than a slice.
TEST(EvictionTest, NewSessionWaitsForTheVictimsOfTheLastOne) {
  constexpr uint64_t kChunks = 2'000;
  for (const bool closed_first : {true, false}) {
    TestPool t;
    const SessionId s = t.Connect(0, kChunks * kChunk);
    for (uint64_t first = 1; first <= 1'800; first += 900) {
      ASSERT_OK(t.SendRecords(s, first, Puts(first, 900, first)));
    }
    Store& store = *t.pool().stores.at(StoreIndex(0));
    wire::StoreMessage need;
    need.mutable_need_bytes()->set_bytes(1'000 * kChunk);
    ASSERT_OK(t.Send(s, need));
    ASSERT_GE(store.dram().evicting_chunks, 800u);
    uint64_t left = store.dram().evicting_chunks;
    if (closed_first) t.core().OnSessionClosed(s, t.now);
    int refused = 0;
    while (true) {
      const auto opened = t.core().OnHello(t.Hello(0, kChunks * kChunk, 1), t.now);
      EXPECT_GE(store.dram().evicting_chunks + kSliceKeys, left);
      if (opened.ok()) break;
      EXPECT_THAT(opened, StatusIs(absl::StatusCode::kUnavailable));
      ASSERT_LT(++refused, 100);
      left = store.dram().evicting_chunks;
      t.core().TakeBackStep(t.now);
      EXPECT_GE(store.dram().evicting_chunks + kSliceKeys, left);
      left = store.dram().evicting_chunks;
    }
    EXPECT_GT(refused, 1);
    EXPECT_EQ(store.dram().evicting_chunks, 0u);
  }
}

}  // namespace
}  // namespace cistern::master
