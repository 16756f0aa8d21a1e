#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/columns.h"
#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/evictor.h"
#include "master/pool_state.h"
#include "master/session_call.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;
constexpr uint64_t kChunk = 65536;

std::vector<TestRecord> Puts(uint64_t first_id, uint64_t count, uint64_t first_version) {
  std::vector<TestRecord> out;
  for (uint64_t i = 0; i < count; ++i) {
    out.push_back({.id = first_id + i, .version = first_version + i});
  }
  return out;
}

TestRecord Gone(uint64_t id, uint64_t version, wire::Cause cause = wire::CAUSE_EVICT_WATERMARK) {
  return {.id = id, .version = version, .tiers = 0, .cause = cause};
}

// --- Lookup.

TEST(LookupTest, LeadingRunEndsAtTheFirstMiss) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(
      s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}, {.id = 4, .version = 3}}));
  const wire::LookupReply reply = t.Lookup({1, 2, 3, 4});
  EXPECT_EQ(reply.leading_run(), 2u);
  EXPECT_EQ(reply.present(), std::string(1, 0b1011));
  EXPECT_EQ(reply.replica_columns(), 1u);
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 0), StoreIndex(0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 2).value, StoreIndex::kNone);
  EXPECT_EQ(reply.leased_keys(), 2u);
  EXPECT_EQ(reply.lease_ms(), 10'000u);
  EXPECT_FALSE(reply.lease_shortened());
  EXPECT_EQ(reply.tiers(), "") << "every present one is in DRAM";
  ASSERT_TRUE(reply.has_directory());
  EXPECT_EQ(reply.directory().stores(0).name(), "store-0");
}

TEST(LookupTest, KeyCountsOnlyWithAllItsShards) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  wire::StoreMessage message;
  wire::Delta& delta = *message.mutable_delta();
  delta.set_seq_first(1);
  TestPool::FillRecords({{.id = 1, .version = 1}, {.id = 1, .version = 2}, {.id = 2, .version = 3}},
                        &delta);
  ColumnWriter<uint16_t> shards(delta.mutable_shards(), 3);
  shards.Set(0, 0);
  shards.Set(1, 1);
  shards.Set(2, 0);
  ASSERT_OK(t.Send(s, message));
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(t.ns_ref());
  request.set_ids(PackIds({TestId(1), TestId(2)}));
  request.set_shard_count(2);
  request.set_want_lengths(true);
  wire::LookupReply reply;
  LookupCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  ASSERT_TRUE(call.Step(t.core(), t.now));
  EXPECT_EQ(reply.leading_run(), 1u);
  EXPECT_EQ(reply.present(), std::string(1, 0b01));
  ASSERT_EQ(reply.stores().size(), 8u) << "columns run over chunks";
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 2), StoreIndex(0)) << "key 2 shard 0 is there";
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 3).value, StoreIndex::kNone);
  const auto lengths = Column<uint32_t>::Parse(reply.lengths(), 4, "lengths", false, false);
  ASSERT_OK(lengths);
  EXPECT_EQ((*lengths)[1], kChunk);
  EXPECT_EQ((*lengths)[3], 0u);
}

TEST(LookupTest, SecondReplicaHasItsOwnColumn) {
  TestPool t;
  const SessionId a = t.Connect(0, 64 * kMiB);
  const SessionId b = t.Connect(1, 64 * kMiB);
  ASSERT_OK(t.SendRecords(a, 1, Puts(1, 3, 1)));
  ASSERT_OK(t.SendRecords(b, 1, {{.id = 2, .version = 1}}));
  const wire::LookupReply reply = t.Lookup({1, 2, 3});
  EXPECT_EQ(reply.replica_columns(), 2u);
  ASSERT_EQ(reply.stores().size(), 12u);
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 1), StoreIndex(0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 3 + 1), StoreIndex(1));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 3 + 0).value, StoreIndex::kNone);
}

TEST(LookupTest, TiersAreShownOnceOneIsNotInDram) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1,
                          {{.id = 1, .version = 1},
                           {.id = 2, .version = 2, .tiers = kSsd},
                           {.id = 3, .version = 3, .tiers = kDram | kSsd}}));
  EXPECT_EQ(t.Lookup({1, 2, 3}).tiers(), std::string("\x01\x02\x03", 3));
}

TEST(LookupTest, AnotherNamespacesChunkIsAMiss) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  wire::OpenNamespaceRequest open;
  open.set_name("other");
  wire::OpenNamespaceReply other;
  ASSERT_OK(t.core().OpenNamespace(open, &other));
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(other.ns_ref());
  request.set_ids(PackIds({TestId(1)}));
  wire::LookupReply reply;
  LookupCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  ASSERT_TRUE(call.Step(t.core(), t.now));
  EXPECT_EQ(reply.leading_run(), 0u);
}

TEST(LookupTest, StaleMapIsAnsweredWithTheMapOnly) {
  TestPool t;
  wire::LookupRequest request;
  request.set_map_version(7);
  request.set_ns_ref(t.ns_ref());
  request.set_ids(PackIds({TestId(1)}));
  wire::LookupReply reply;
  LookupCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  EXPECT_TRUE(call.Step(t.core(), t.now));
  EXPECT_EQ(reply.map().version(), 1u);
  EXPECT_EQ(reply.present(), "");
}

TEST(LookupTest, BadRequestsAreRefused) {
  TestPool t;
  wire::LookupRequest request;
  wire::LookupReply reply;
  request.set_map_version(1);
  request.set_ids("fifteen bytes..");
  EXPECT_THAT(LookupCall(request, &reply).Prepare(), StatusIs(absl::StatusCode::kInvalidArgument));
  request.set_ids(std::string(16, 'x'));
  request.set_shard_first(4095);
  request.set_shard_count(2);
  EXPECT_THAT(LookupCall(request, &reply).Prepare(), StatusIs(absl::StatusCode::kInvalidArgument));
  request.set_shard_first(0);
  request.set_shard_count(1);
  request.set_ids(std::string(16 * 32769, 'x'));
  EXPECT_THAT(LookupCall(request, &reply).Prepare(), StatusIs(absl::StatusCode::kInvalidArgument));
  request.set_ids(std::string(16, 'x'));
  request.set_ns_ref(99);
  LookupCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  EXPECT_TRUE(call.Step(t.core(), t.now));
  EXPECT_THAT(call.status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(LookupTest, LongBatchesAreWorkedOffInSlices) {
  TestPool t;
  const SessionId s = t.Connect(0, 640 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(0, 2000, 1)));
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(t.ns_ref());
  std::vector<KeyId> ids;
  for (uint64_t i = 0; i < 2000; ++i) ids.push_back(TestId(i));
  request.set_ids(PackIds(ids));
  wire::LookupReply reply;
  LookupCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  int steps = 1;
  while (!call.Step(t.core(), t.now)) ++steps;
  EXPECT_EQ(steps, 16);  // 15 of 128, one of 80
  EXPECT_EQ(reply.leading_run(), 2000u);
}

TEST(LookupTest, MissesAreExplained) {
  TestPool t;
  const SessionId a = t.Connect(0, 64 * kMiB);
  const SessionId b = t.Connect(1, 64 * kMiB);
  ASSERT_OK(t.SendRecords(a, 1, Puts(1, 2, 1)));
  ASSERT_OK(t.SendRecords(b, 1, Puts(3, 1, 1)));
  ASSERT_OK(t.SendRecords(a, 3, {Gone(1, 1), Gone(2, 2, wire::CAUSE_REMOVED)}));
  t.core().OnSessionClosed(b, t.now);
  t.Lookup({1, 2, 3, 4});
  const PoolCounters counters = t.core().Pool(t.now).counters;
  EXPECT_EQ(counters.miss_evicted, 1u);     // 1
  EXPECT_EQ(counters.miss_absent, 2u);      // 2 removed by a caller, 4 never put
  EXPECT_EQ(counters.miss_dead_store, 1u);  // 3
  EXPECT_EQ(counters.lookup_keys, 4u);
  EXPECT_EQ(counters.lookup_hits, 0u);
}

// --- Leases.

TEST(LeaseTest, ShareBoundsWhatALookupLeases) {
  TestPool t;  // share 0.5
  const SessionId s = t.Connect(0, 16 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 12, 1)));
  const wire::LookupReply first = t.Lookup({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(first.leased_keys(), 6u);
  const wire::LookupReply second = t.Lookup({7, 8, 9, 10});
  EXPECT_EQ(second.leading_run(), 4u) << "present all the same";
  EXPECT_EQ(second.leased_keys(), 2u);
  EXPECT_TRUE(second.lease_shortened());
  const wire::LookupReply third = t.Lookup({11, 12});
  EXPECT_EQ(third.lease_ms(), 0u);
  EXPECT_EQ(third.lease_id(), "");
  EXPECT_TRUE(third.lease_shortened());
  EXPECT_EQ(t.core().Pool(t.now).leased_bytes, 8 * kChunk);
  EXPECT_TRUE(t.Release(first.lease_id()));
  EXPECT_EQ(t.Lookup({11, 12}).leased_keys(), 2u);
}

TEST(LeaseTest, TimeIsCappedAtThePoolsMaximum) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  EXPECT_EQ(t.Lookup({1}, /*lease_ms=*/3'600'000).lease_ms(), 60'000u);
  EXPECT_EQ(t.Lookup({1}, /*lease_ms=*/2'000).lease_ms(), 2'000u);
}

TEST(LeaseTest, LeasedChunkOutlivesItsTurnAndReleaseGivesItUp) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 90, 1)));
  const wire::LookupReply held = t.Lookup({1});
  // 96 of 100 chunks: above 0.95, so down to 92. 1 is leased, 2 to 5 go.
  ASSERT_OK(t.SendRecords(s, 91, Puts(91, 6, 91)));
  EXPECT_EQ(t.Evicted(s), (std::vector{TestId(2), TestId(3), TestId(4), TestId(5)}));
  EXPECT_TRUE(t.Release(held.lease_id()));
  EXPECT_FALSE(t.Release(held.lease_id()));
  const auto chunk = t.core().StatChunk(NamespaceIndex(0), TestId(1), Shard(0), t.now);
  ASSERT_OK(chunk);
  EXPECT_EQ(chunk->lease_left, absl::ZeroDuration());
}

TEST(LeaseTest, ExpiryIsByTimeAlone) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 3, 1)));
  t.Lookup({1, 2, 3});
  EXPECT_EQ(t.core().Pool(t.now).active_leases, 1u);
  t.now = t.now + absl::Milliseconds(9'900);
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.core().Pool(t.now).active_leases, 1u);
  t.now = t.now + absl::Milliseconds(100);
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.core().Pool(t.now).active_leases, 0u);
  EXPECT_EQ(t.core().Pool(t.now).leased_bytes, 0u);
}

TEST(ExistsTest, TakesNoLeaseAndIsNoRead) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 2, 1)));
  EXPECT_EQ(t.Exists({1, 2, 3}), (std::vector{true, true, false}));
  EXPECT_EQ(t.core().Pool(t.now).active_leases, 0u);
  const auto chunk = t.core().StatChunk(NamespaceIndex(0), TestId(1), Shard(0), t.now);
  ASSERT_OK(chunk);
  EXPECT_FALSE(chunk->touched);
}

// --- Place.

TEST(PlaceTest, PresentInProgressAndPlacedAreToldApart) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  t.Place({2}, kChunk, /*operation=*/5);
  const wire::PlaceReply reply = t.Place({1, 2, 3}, kChunk, /*operation=*/6);
  EXPECT_EQ(reply.present(), std::string(1, 0b001));
  EXPECT_EQ(reply.in_progress(), std::string(1, 0b010));
  EXPECT_EQ(reply.refused(), std::string(1, 0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 0), StoreIndex(0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 1).value, StoreIndex::kNone);
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 2), StoreIndex(0));
}

TEST(PlaceTest, RepeatOfAnOperationHearsTheSameStore) {
  TestPool t;
  t.Connect(0, 10 * kMiB);
  t.Connect(1, 10 * kMiB);
  const StoreIndex first = TestPool::StoreAt(t.Place({1}, kChunk, 5).stores(), 0);
  // The other one has more room now; the repeat stays.
  const wire::PlaceReply again = t.Place({1}, kChunk, 5);
  EXPECT_EQ(TestPool::StoreAt(again.stores(), 0), first);
  EXPECT_EQ(again.in_progress(), std::string(1, 0));
  EXPECT_NE(TestPool::StoreAt(t.Place({2}).stores(), 0), first)
      << "placed bytes count before they are reported";
}

TEST(PlaceTest, InProgressEndsWithTheRecordOrByTime) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  t.Place({1, 2});
  EXPECT_EQ(t.core().Pool(t.now).in_progress_puts, 2u);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  EXPECT_EQ(t.core().Pool(t.now).in_progress_puts, 1u);
  t.now = t.now + absl::Seconds(10);
  EXPECT_EQ(t.Place({2}).in_progress(), std::string(1, 0)) << "its time was up";
}

TEST(PlaceTest, PlacementInADeadStoreIsVoid) {
  TestPool t;
  t.Connect(0, 64 * kMiB);
  const SessionId first = t.Connect(1, 640 * kMiB);
  EXPECT_EQ(TestPool::StoreAt(t.Place({1}).stores(), 0), StoreIndex(1));
  t.core().OnSessionClosed(first, t.now);
  EXPECT_EQ(TestPool::StoreAt(t.Place({1}).stores(), 0), StoreIndex(0));
}

TEST(PlaceTest, BurstsDoNotOverfillAStore) {
  TestPool t;
  t.Connect(0, 100 * kChunk);
  uint64_t placed = 0, refused = 0;
  for (uint64_t id = 0; id < 300; ++id) {
    const wire::PlaceReply reply = t.Place({id});
    (BitmapGet(reply.refused(), 0) ? refused : placed) += 1;
  }
  EXPECT_EQ(placed, 100u) << "nothing is there yet that could be evicted";
  EXPECT_EQ(refused, 200u);
}

TEST(PlaceTest, GoesElsewhereWhenTheAncestorsStoreIsFullOfWhatCannotGo) {
  MasterOptions options;
  options.lease_share = 1.0;
  TestPool t(options);
  const SessionId full = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(full, 1, Puts(1, 95, 1)));
  std::vector<uint64_t> ids;
  for (uint64_t i = 1; i <= 95; ++i) ids.push_back(i);
  ASSERT_EQ(t.Lookup(ids).leased_keys(), 95u);
  t.Connect(1, 100 * kChunk);
  // More than half of the chain is in store 0, which has room for five of the eight others.
  const wire::PlaceReply reply =
      t.Place({1, 2, 3, 4, 5, 6, 7, 8, 9, 201, 202, 203, 204, 205, 206, 207, 208});
  EXPECT_EQ(reply.refused(), std::string(3, 0));
  for (size_t i = 9; i < 14; ++i) EXPECT_EQ(TestPool::StoreAt(reply.stores(), i), StoreIndex(0));
  for (size_t i = 14; i < 17; ++i) EXPECT_EQ(TestPool::StoreAt(reply.stores(), i), StoreIndex(1));
  // Both full: refused, however often it is asked.
  ids.clear();
  for (uint64_t i = 301; i <= 401; ++i) ids.push_back(i);
  const wire::PlaceReply second = t.Place(ids);
  for (size_t i = 0; i < 97; ++i) EXPECT_EQ(TestPool::StoreAt(second.stores(), i), StoreIndex(1));
  for (size_t i = 97; i < 101; ++i) EXPECT_TRUE(BitmapGet(second.refused(), i));
}

TEST(PlaceTest, NoStoreIsAReason) {
  TestPool t;
  const wire::PlaceReply reply = t.Place({1, 2});
  EXPECT_EQ(reply.refused(), std::string(1, 0b11));
  EXPECT_NE(reply.refused_reason(), "");
  EXPECT_EQ(t.core().Pool(t.now).counters.place_refused, 2u);
}

TEST(PlaceTest, LengthsOutOfBoundsAreRefused) {
  TestPool t;
  for (const uint32_t length : {0u, 4095u, (1u << 30) + 1}) {
    wire::PlaceRequest request;
    request.set_map_version(1);
    request.set_ids(PackIds({TestId(1)}));
    request.set_lengths(&length, 4);
    request.set_operation_id(std::string(16, 'o'));
    wire::PlaceReply reply;
    EXPECT_THAT(PlaceCall(request, &reply).Prepare(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// --- Eviction.

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

// --- Records.

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

// --- Removal.

// As a store does that has nothing more to tell.
void AnswerFences(TestPool& t, SessionId s) {
  for (const wire::MasterMessage& message : t.Output(s)) {
    if (!message.has_fence()) continue;
    wire::StoreMessage done;
    done.mutable_fence_done()->set_command(message.fence().command());
    EXPECT_OK(t.Send(s, done));
  }
}

wire::RemoveReply Remove(TestPool& t, RemoveCall& call, SessionId s, uint64_t seq,
                         const std::vector<TestRecord>& answer, wire::RemoveReply& reply) {
  while (!call.Step(t.core(), t.now)) {
    if (call.blocked()) AnswerFences(t, s);
  }
  EXPECT_OK(call.status());
  if (!answer.empty()) {
    EXPECT_OK(t.SendRecords(s, seq, answer));
  }
  bool done = false;
  for (const RemovalTicket ticket : t.core().TakeFinishedRemovals()) {
    done = done || ticket == call.ticket();
  }
  while (!call.FinishStep(t.core(), done)) {
  }
  return reply;
}

class RemoveTest : public testing::Test {
 protected:
  RemoveTest() : session_(t_.Connect(0, 64 * kMiB)) {
    EXPECT_OK(t_.SendRecords(session_, 1, Puts(1, 3, 1)));
    request_.set_map_version(1);
    request_.set_ns_ref(t_.ns_ref());
  }
  wire::RemoveReply Run(const std::vector<TestRecord>& answer) {
    RemoveCall call(request_, &reply_);
    EXPECT_OK(call.Prepare());
    return Remove(t_, call, session_, 4, answer, reply_);
  }

  TestPool t_;
  const SessionId session_;
  wire::RemoveRequest request_;
  wire::RemoveReply reply_;
};

TEST_F(RemoveTest, IsAnsweredByTheStoresRecords) {
  request_.set_ids(PackIds({TestId(1), TestId(9)}));
  const wire::RemoveReply reply = Run({Gone(1, 1, wire::CAUSE_REMOVED)});
  EXPECT_EQ(reply.statuses(), std::string({wire::CHUNK_OK, wire::CHUNK_NOT_FOUND}));
  EXPECT_EQ(reply.removed_count(), 1u);
  EXPECT_EQ(t_.Evicted(session_), std::vector{TestId(1)});
  EXPECT_EQ(t_.Exists({1, 2}), (std::vector{false, true}));
}

TEST_F(RemoveTest, UnansweredIsDeadlineExceeded) {
  request_.set_ids(PackIds({TestId(1)}));
  const wire::RemoveReply reply = Run({});
  EXPECT_EQ(reply.statuses(), std::string({wire::CHUNK_DEADLINE_EXCEEDED}));
  EXPECT_EQ(t_.core().Pool(t_.now).pending_removals, 0u);
}

TEST_F(RemoveTest, LeasedIsRefusedUnlessForced) {
  t_.Lookup({1});
  request_.set_ids(PackIds({TestId(1)}));
  wire::RemoveReply reply = Run({});
  EXPECT_EQ(reply.statuses(), std::string({wire::CHUNK_FAILED_PRECONDITION}));
  EXPECT_EQ(reply.refused_count(), 1u);
  EXPECT_TRUE(t_.Evicted(session_).empty());
  reply_.Clear();
  request_.set_force(true);
  reply = Run({Gone(1, 1, wire::CAUSE_REMOVED)});
  EXPECT_EQ(reply.statuses(), std::string({wire::CHUNK_OK}));
}

TEST_F(RemoveTest, WholeNamespaceGoes) {
  request_.set_all(true);
  const wire::RemoveReply reply = Run({Gone(1, 1), Gone(2, 2), Gone(3, 3)});
  EXPECT_EQ(reply.removed_count(), 3u);
  EXPECT_EQ(t_.core().Pool(t_.now).chunk_count, 0u);
}

TEST_F(RemoveTest, WholeNamespaceTakesWhatIsNotReportedYet) {
  request_.set_all(true);
  RemoveCall call(request_, &reply_);
  ASSERT_OK(call.Prepare());
  EXPECT_FALSE(call.Step(t_.core(), t_.now));
  EXPECT_TRUE(call.blocked());
  EXPECT_FALSE(call.Step(t_.core(), t_.now));  // asked once
  const auto out = t_.Output(session_);
  ASSERT_EQ(out.size(), 1u);
  ASSERT_TRUE(out[0].has_fence());
  // Acknowledged to its client before the call, told of now.
  ASSERT_OK(t_.SendRecords(session_, 4, Puts(9, 1, 4)));
  wire::StoreMessage done;
  done.mutable_fence_done()->set_command(out[0].fence().command());
  done.mutable_fence_done()->set_record_seq(5);
  ASSERT_OK(t_.Send(session_, done));
  EXPECT_TRUE(call.Step(t_.core(), t_.now));
  EXPECT_EQ(t_.Evicted(session_), (std::vector{TestId(1), TestId(2), TestId(3), TestId(9)}));
}

TEST_F(RemoveTest, KeyThatIsPlacedAndNotReportedYetIsWaitedFor) {
  t_.Place({7});
  request_.set_ids(PackIds({TestId(7), TestId(8)}));
  RemoveCall call(request_, &reply_);
  ASSERT_OK(call.Prepare());
  EXPECT_FALSE(call.Step(t_.core(), t_.now));
  EXPECT_FALSE(call.Step(t_.core(), t_.now));
  EXPECT_TRUE(call.blocked());
  ASSERT_OK(t_.SendRecords(session_, 4, Puts(7, 1, 4)));
  AnswerFences(t_, session_);
  EXPECT_TRUE(call.Step(t_.core(), t_.now));
  EXPECT_EQ(t_.Evicted(session_), std::vector{TestId(7)});
  ASSERT_OK(t_.SendRecords(session_, 5, {Gone(7, 4, wire::CAUSE_REMOVED)}));
  while (!call.FinishStep(t_.core(), true)) {
  }
  EXPECT_EQ(reply_.statuses(), std::string({wire::CHUNK_OK, wire::CHUNK_NOT_FOUND}));
}

TEST_F(RemoveTest, FenceOfASessionThatEndsHoldsNobodyUp) {
  request_.set_all(true);
  RemoveCall call(request_, &reply_);
  ASSERT_OK(call.Prepare());
  EXPECT_FALSE(call.Step(t_.core(), t_.now));
  t_.core().OnSessionClosed(session_, t_.now);
  EXPECT_TRUE(call.Step(t_.core(), t_.now));
  while (!call.FinishStep(t_.core(), true)) {
  }
  EXPECT_EQ(reply_.removed_count(), 0u);
  EXPECT_EQ(reply_.unreachable_count(), 3u);
}

TEST_F(RemoveTest, FenceDoneAheadOfItsRecordsEndsTheSession) {
  wire::StoreMessage done;
  done.mutable_fence_done()->set_record_seq(100);
  EXPECT_THAT(t_.Send(session_, done), StatusIs(absl::StatusCode::kAborted));
  done.mutable_fence_done()->set_record_seq(4);
  done.mutable_fence_done()->set_command(1'000);
  EXPECT_THAT(t_.Send(session_, done), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RemoveTest, ChunkOnADeadStoreIsUnavailable) {
  t_.core().OnSessionClosed(session_, t_.now);
  request_.set_ids(PackIds({TestId(1)}));
  EXPECT_EQ(Run({}).statuses(), std::string({wire::CHUNK_UNAVAILABLE}));
}

TEST_F(RemoveTest, StoreLostWhileWaitingEndsTheWait) {
  request_.set_ids(PackIds({TestId(1)}));
  RemoveCall call(request_, &reply_);
  ASSERT_OK(call.Prepare());
  ASSERT_TRUE(call.Step(t_.core(), t_.now));
  t_.core().OnSessionClosed(session_, t_.now);
  EXPECT_EQ(t_.core().TakeFinishedRemovals(), std::vector{call.ticket()});
  ASSERT_TRUE(call.FinishStep(t_.core(), true));
  EXPECT_EQ(reply_.statuses(), std::string({wire::CHUNK_UNAVAILABLE}));
}

// --- Administration.

TEST(AdminTest, ListsEveryChunkOnceByPages) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 10, 1)));
  uint64_t page = 0;
  std::vector<ChunkView> chunks;
  int pages = 0;
  do {
    t.core().ListChunks(NamespaceIndex(NamespaceIndex::kNone), &page, 4, t.now, &chunks);
    ++pages;
  } while (page != 0);
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(chunks.size(), 10u);
  EXPECT_EQ(chunks[9].id, TestId(10));
  EXPECT_EQ(chunks[9].replicas[0].version, Version(10));
}

TEST(AdminTest, EvictsOfOneNamespaceWhatIsNotLeased) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 4, 1)));
  t.Lookup({2});
  uint64_t page = 0;
  const auto evicted = t.core().EvictSlice(NamespaceIndex(0), UINT64_MAX, &page, t.now);
  EXPECT_EQ(evicted.chunks, 3u);
  EXPECT_EQ(evicted.bytes, 3 * kChunk);
  EXPECT_EQ(page, 0u);
  EXPECT_EQ(t.Evicted(s), (std::vector{TestId(1), TestId(3), TestId(4)}));
}

TEST(AdminTest, EvictsTheOldestOfThePool) {
  TestPool t;
  const SessionId a = t.Connect(0, 64 * kMiB);
  const SessionId b = t.Connect(1, 64 * kMiB);
  ASSERT_OK(t.SendRecords(b, 1, Puts(100, 2, 1)));
  t.now = t.now + absl::Seconds(5);
  ASSERT_OK(t.SendRecords(a, 1, Puts(1, 2, 1)));
  uint64_t page = 0;
  const auto evicted =
      t.core().EvictSlice(NamespaceIndex(NamespaceIndex::kNone), kChunk, &page, t.now);
  EXPECT_EQ(evicted.chunks, 1u);
  EXPECT_EQ(t.Evicted(b), std::vector{TestId(100)});
  EXPECT_TRUE(t.Evicted(a).empty());
}

TEST(AdminTest, RemovedNamespaceTellsTheStores) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 4, 1)));
  t.Output(s);
  ASSERT_OK_AND_ASSIGN(const uint64_t chunks, t.core().RemoveNamespace("test"));
  EXPECT_EQ(chunks, 4u);
  const auto out = t.Output(s);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].drop_namespace().namespace_id(), t.ns().id());
  EXPECT_TRUE(t.state().state.namespaces.empty());
  EXPECT_THAT(t.core().RemoveNamespace("test"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(AdminTest, NamespaceRemovedWhileAStoreWasAwayGoesWhenItIsBack) {
  TestPool t;
  SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 2, 1)));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK(t.core().RemoveNamespace("test").status());
  s = t.Connect(0, 64 * kMiB);  // its hello names the namespace
  bool told = false;
  for (const wire::MasterMessage& message : t.Output(s)) {
    told = told || message.drop_namespace().namespace_id() == t.ns().id();
  }
  EXPECT_TRUE(told);
}

TEST(AdminTest, NamespaceRemovedWhileAStoreWasAwayGoesUnderTheNextMasterToo) {
  MemoryStateStore state;
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 2, 1)));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK(t.core().RemoveNamespace("test").status());
  state.state = t.state().state;
  MasterCore next(MasterOptions(), state);
  ASSERT_OK(next.Start(t.now));
  EXPECT_TRUE(next.FindNamespace("", "test").none());
  EXPECT_TRUE(next.Namespaces().empty());
  const auto opened = next.OnHello(t.Hello(0, 64 * kMiB, 1), t.now);
  ASSERT_OK(opened.status());
  std::vector<wire::MasterMessage> out;
  next.TakeOutgoing(opened->session, 100, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].drop_namespace().namespace_id(), t.ns().id());
  // Opened anew it is a namespace like any other.
  wire::OpenNamespaceRequest request;
  request.set_name("test");
  request.set_fingerprint("fp");
  wire::OpenNamespaceReply reply;
  ASSERT_OK(next.OpenNamespace(request, &reply));
  EXPECT_TRUE(reply.created());
  ASSERT_EQ(state.state.namespaces.size(), 1u);
  EXPECT_FALSE(state.state.namespaces[0].removed());
}

// --- Expiry.

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
