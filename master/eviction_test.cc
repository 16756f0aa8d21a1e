// The core: who is evicted, and when.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

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

}  // namespace
}  // namespace cistern::master
