// The core: what stores' records, and time, make of the index.
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

TEST(RecordsTest, AppliedTwiceChangesNothing) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  const auto records = Puts(1, 3, 1);
  ASSERT_OK(t.SendRecords(s, 1, records));
  ASSERT_OK(t.SendRecords(s, 1, records));  // the same sequence numbers: skipped
  ASSERT_OK(t.SendRecords(s, 4, records));  // the same state again
  const StoreView view = t.core().Stores(t.now)[0];
  EXPECT_EQ(view.chunk_count, 3u);
  EXPECT_EQ(view.accounted_bytes, 3 * kChunk);
  EXPECT_EQ(t.core().Namespaces()[0].chunk_count, 3u);
}

TEST(RecordsTest, OlderStateChangesNothing) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 10}, Gone(1, 9)}));
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u);
  ASSERT_OK(t.SendRecords(s, 3, {Gone(1, 10)}));
  EXPECT_EQ(t.Lookup({1}).leading_run(), 0u);
}

TEST(RecordsTest, ReplacementChangesLengthAndBytes) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(
      s, 1, {{.id = 1, .version = 1, .length = 5000}, {.id = 1, .version = 2, .length = 9000}}));
  EXPECT_EQ(t.core().Stores(t.now)[0].accounted_bytes, 12'288u);  // 9,000 in 4 KiB
  EXPECT_EQ(t.core().Namespaces()[0].payload_bytes, 9000u);
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 1u);
}

TEST(RecordsTest, ReplicaOfAnotherLengthIsRefusedAndCounted) {
  TestPool t;
  const SessionId a = t.Connect(0, 64 * kMiB);
  const SessionId b = t.Connect(1, 64 * kMiB);
  ASSERT_OK(t.SendRecords(a, 1, {{.id = 1, .version = 1, .length = 5000}}));
  ASSERT_OK(t.SendRecords(b, 1, {{.id = 1, .version = 1, .length = 6000}}));
  EXPECT_EQ(t.core().Pool(t.now).counters.records_refused, 1u);
  EXPECT_EQ(t.core().Stores(t.now)[1].chunk_count, 0u);
}

TEST(RecordsTest, FullIndexRefusesAndGoesOn) {
  MasterOptions options;
  options.max_chunks = 2;
  TestPool t(options);
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 3, 1)));
  EXPECT_EQ(t.core().Pool(t.now).counters.records_refused, 1u);
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 2u);
}

TEST(ExpiryTest, WhatHasExpiredIsGoneBeforeItsStoreSaysSo) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  wire::StoreMessage message;
  message.mutable_delta()->set_seq_first(1);
  TestPool::FillRecords(Puts(1, 2, 1), message.mutable_delta());
  const uint32_t expiries[2] = {1'000, 0};
  message.mutable_delta()->set_expiries(expiries, sizeof(expiries));
  ASSERT_OK(t.Send(s, message));
  t.core().Tick(t.now, absl::FromUnixSeconds(999));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, true}));
  EXPECT_EQ(t.Lookup({1, 2}).leading_run(), 2u);
  t.core().Tick(t.now, absl::FromUnixSeconds(1'000));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{false, true}));
  EXPECT_EQ(t.Lookup({1, 2}).leading_run(), 0u);
  // It can be put anew without waiting for the store.
  EXPECT_FALSE(BitmapGet(t.Place({1}).present(), 0));
  // A clock that is set back brings nothing back that the store has freed, and delays the rest.
  t.core().Tick(t.now, absl::FromUnixSeconds(10));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, true}));
  ASSERT_OK(t.SendRecords(s, 3, {Gone(1, 1, wire::CAUSE_EXPIRED)}));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{false, true}));
}

}  // namespace
}  // namespace cistern::master
