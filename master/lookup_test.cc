// The core: lookups, their leases, existence checks.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/columns.h"
#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;
constexpr uint64_t kChunk = 65536;

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

}  // namespace
}  // namespace cistern::master
