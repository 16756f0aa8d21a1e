#include "master/session_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;

wire::StoreMessage Begin(uint64_t id, uint64_t seq) {
  wire::StoreMessage m;
  m.mutable_snapshot_begin()->set_snapshot_id(id);
  m.mutable_snapshot_begin()->set_seq(seq);
  return m;
}
wire::StoreMessage Page(uint64_t id, const std::vector<TestRecord>& records) {
  wire::StoreMessage m;
  m.mutable_snapshot_page()->set_snapshot_id(id);
  TestPool::FillRecords(records, m.mutable_snapshot_page()->mutable_records());
  return m;
}
// `only` is the one id of the snapshot, so that its xor is that id.
wire::StoreMessage End(uint64_t id, uint64_t count, const KeyId& only) {
  wire::StoreMessage m;
  m.mutable_snapshot_end()->set_snapshot_id(id);
  m.mutable_snapshot_end()->set_count(count);
  m.mutable_snapshot_end()->set_xor_of_ids(std::string(only.view()));
  return m;
}

TEST(SessionTest, UnknownStoreSendsASnapshot) {
  TestPool t;
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 1), t.now));
  EXPECT_TRUE(opened.ack.snapshot());
  EXPECT_EQ(opened.ack.epoch(), 1u);
  EXPECT_EQ(opened.ack.store_index(), 0u);
  EXPECT_EQ(opened.ack.delta_flush_us(), 2000u);
  EXPECT_EQ(opened.ack.heartbeat_ms(), 500u);
  EXPECT_EQ(t.core().Stores(t.now)[0].state, StoreState::kSyncing);
}

TEST(SessionTest, SameIncarnationResumesWhereItWas) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  t.core().OnSessionClosed(s, t.now);
  EXPECT_EQ(t.Lookup({1}).leading_run(), 0u) << "a closed session is dead at once";
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 1), t.now));
  EXPECT_FALSE(opened.ack.snapshot());
  EXPECT_EQ(opened.ack.resume_seq(), 3u);
  EXPECT_EQ(opened.ack.store_index(), 0u);
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u);
}

TEST(SessionTest, LogThatDoesNotReachBackMeansASnapshot) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}}));
  t.core().OnSessionClosed(s, t.now);
  wire::SessionHello hello = t.Hello(0, kMiB, 1);
  hello.set_log_first(3);  // 2 is next
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(hello, t.now));
  EXPECT_TRUE(opened.ack.snapshot());
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u) << "the same process still has it: it goes on serving";
}

TEST(SessionTest, NewIncarnationsOldChunksAreHiddenUntilShown) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 2), t.now));
  ASSERT_TRUE(opened.ack.snapshot());
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{false, false}));
  ASSERT_OK(t.Send(opened.session, Begin(5, 1)));
  ASSERT_OK(t.Send(opened.session, Page(5, {{.id = 1, .version = 1}})));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, false}));
  ASSERT_OK(t.Send(opened.session, End(5, 1, TestId(1))));
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 2u);
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 1u) << "what was not shown is swept";
  EXPECT_EQ(t.core().Stores(t.now)[0].accounted_bytes, 65536u);
}

TEST(SessionTest, DeltaDuringASnapshotIsKept) {
  TestPool t;
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 1), t.now));
  const SessionId s = opened.session;
  ASSERT_OK(t.SendRecords(s, 7, {{.id = 8, .version = 1}}));  // before Begin: will be contained
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 0u);
  ASSERT_OK(t.Send(s, Begin(5, 8)));
  ASSERT_OK(t.SendRecords(s, 8, {{.id = 9, .version = 2}}));
  ASSERT_OK(t.Send(s, Page(5, {{.id = 8, .version = 1}})));
  ASSERT_OK(t.Send(s, End(5, 1, TestId(8))));
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.Exists({8, 9}), (std::vector{true, true}));
}

TEST(SessionTest, SnapshotThatWasCutIsFollowedByAWholeOne) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK_AND_ASSIGN(const auto cut, t.core().OnHello(t.Hello(0, kMiB, 2), t.now));
  ASSERT_OK(t.Send(cut.session, Begin(5, 1)));
  ASSERT_OK(t.Send(cut.session, Page(5, {{.id = 1, .version = 1}})));
  t.core().OnSessionClosed(cut.session, t.now);
  EXPECT_THAT(t.core().OnHello(t.Hello(0, kMiB, 3), t.now),
              StatusIs(absl::StatusCode::kUnavailable))
      << "marks are aligned first";
  while (t.core().BackgroundStep(t.now)) {
  }
  ASSERT_OK_AND_ASSIGN(const auto whole, t.core().OnHello(t.Hello(0, kMiB, 3), t.now));
  ASSERT_OK(t.Send(whole.session, Begin(6, 1)));
  ASSERT_OK(t.Send(whole.session, Page(6, {{.id = 2, .version = 2}})));
  ASSERT_OK(t.Send(whole.session, End(6, 1, TestId(2))));
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{false, true}));
}

TEST(SessionTest, WhatANewProcessHasNotShownStaysHiddenWhenItsSnapshotIsCut) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  t.core().OnSessionClosed(s, t.now);
  for (const uint64_t id : {5, 6}) {  // cut twice: the second time it is remembered too
    ASSERT_OK_AND_ASSIGN(const auto cut, t.core().OnHello(t.Hello(0, kMiB, 2), t.now));
    ASSERT_OK(t.Send(cut.session, Begin(id, 1)));
    ASSERT_OK(t.Send(cut.session, Page(id, {{.id = 1, .version = 1}})));
    t.core().OnSessionClosed(cut.session, t.now);
    while (t.core().BackgroundStep(t.now)) {
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto whole, t.core().OnHello(t.Hello(0, kMiB, 2), t.now));
  ASSERT_TRUE(whole.ack.snapshot());
  ASSERT_OK(t.Send(whole.session, Begin(7, 1)));
  ASSERT_OK(t.Send(whole.session, Page(7, {{.id = 1, .version = 1}})));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, false}));
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u);
  EXPECT_EQ(t.Lookup({2}).leading_run(), 0u);
  const std::string present = t.Place({1, 2}).present();
  ASSERT_FALSE(present.empty());
  EXPECT_EQ(present[0] & 3, 1) << "a put of what is not shown is not told that it is there";
  ASSERT_OK(t.Send(whole.session, End(7, 1, TestId(1))));
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, false}));
}

TEST(SessionTest, StoreWhoseLogOverflowedSendsASnapshotUnasked) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  ASSERT_OK(t.Send(s, Begin(9, 500)));
  EXPECT_EQ(t.Exists({1, 2}), (std::vector{true, true})) << "the same process goes on serving";
  EXPECT_THAT(t.Send(s, Begin(10, 500)), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(t.Send(s, Page(9, {{.id = 2, .version = 2}})));
  ASSERT_OK(t.SendRecords(s, 500, {{.id = 3, .version = 501}}));
  ASSERT_OK(t.Send(s, End(9, 1, TestId(2))));
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.Exists({1, 2, 3}), (std::vector{false, true, true}));
  ASSERT_OK(t.Send(s, Begin(11, 501))) << "and again, once the sweep is over";
}

TEST(SessionTest, SnapshotWithAWrongSumEndsTheSession) {
  TestPool t;
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 1), t.now));
  ASSERT_OK(t.Send(opened.session, Begin(5, 1)));
  ASSERT_OK(t.Send(opened.session, Page(5, {{.id = 1, .version = 1}})));
  EXPECT_THAT(t.Send(opened.session, End(5, 2, TestId(1))), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SessionTest, GapEndsTheSession) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}}));
  EXPECT_THAT(t.SendRecords(s, 3, {{.id = 3, .version = 3}}),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("record 2 is missing")));
  EXPECT_EQ(t.Exists({3}), std::vector{false});
}

TEST(SessionTest, LastRecordsThatNeverCameAreMissedByTheSecondHeartbeat) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}}));
  ASSERT_OK(t.SendHeartbeat(s, kMiB, 65536, /*record_seq=*/4, 0)) << "may be ahead of its records";
  ASSERT_OK(t.SendRecords(s, 2, {{.id = 2, .version = 2}}));
  ASSERT_OK(t.SendHeartbeat(s, kMiB, 65536, 4, 0)) << "some have come";
  EXPECT_THAT(t.SendHeartbeat(s, kMiB, 65536, 4, 0), StatusIs(absl::StatusCode::kAborted));
}

TEST(SessionTest, PartlyKnownDeltaIsAppliedFromWhereItIsNew) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}, {.id = 2, .version = 2}}));
  ASSERT_OK(t.SendRecords(s, 2, {{.id = 2, .version = 2}, {.id = 3, .version = 3}}));
  EXPECT_EQ(t.Exists({1, 2, 3}), (std::vector{true, true, true}));
  t.core().Tick(t.now, absl::UnixEpoch());
  const auto out = t.Output(s);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].ack().seq(), 4u) << "every record below it is applied";
}

TEST(SessionTest, NonsenseEndsTheSession) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  wire::StoreMessage message;
  message.mutable_delta()->set_seq_first(1);
  TestPool::FillRecords({{.id = 1, .version = 1}}, message.mutable_delta());
  wire::StoreMessage bad = message;
  bad.mutable_delta()->set_namespaces(std::string("\x07\0\0\0", 4));
  EXPECT_THAT(t.Send(s, bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = message;
  bad.mutable_delta()->set_versions(std::string(7, 'v'));
  EXPECT_THAT(t.Send(s, bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = message;
  bad.mutable_delta()->set_versions(std::string(8, '\xFF'));
  EXPECT_THAT(t.Send(s, bad), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(t.Send(s, Page(1, {})), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 0u);
}

// A buggy or hostile store: chunks that nobody gave it, more than it has room for, again and again.
TEST(SessionTest, StoreThatReportsWhatItWasNeverGivenIsAccountedAndBounded) {
  MasterOptions options;
  options.max_chunks = 1'000;
  TestPool t(options);
  const SessionId honest = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(honest, 1, {{.id = 1, .version = 1}}));
  const SessionId hostile = t.Connect(1, kMiB);
  uint64_t seq = 1;
  for (uint64_t batch = 0; batch < 20; ++batch) {
    std::vector<TestRecord> records;
    for (uint64_t i = 0; i < 500; ++i) {
      records.push_back({.id = 2 + i + batch * 500,
                         .version = seq + i,
                         .length = static_cast<uint32_t>(kMaxChunkBytes)});
    }
    ASSERT_OK(t.SendRecords(hostile, seq, records));
    seq += 500;
  }
  // The index is full and says so; what is counted is what is in it.
  PoolView pool = t.core().Pool(t.now);
  EXPECT_EQ(pool.chunk_count, 1'000u);
  EXPECT_EQ(pool.counters.records_refused, 20u * 500 - 999);
  EXPECT_EQ(t.core().Stores(t.now)[1].chunk_count, 999u);
  EXPECT_EQ(t.core().Stores(t.now)[1].accounted_bytes, 999 * kMaxChunkBytes);
  // It claims to be empty, or larger than any host: no sum runs over, no placement is made there.
  ASSERT_OK(t.SendHeartbeat(hostile, ~uint64_t{0}, ~uint64_t{0}, seq, 0));
  ASSERT_OK(t.SendHeartbeat(hostile, kMiB, 0, seq, ~uint64_t{0}));
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.Exists({1}), std::vector{true});
  // Removals of what it never had change nothing.
  ASSERT_OK(t.SendRecords(hostile, seq, {{.id = 1, .version = 1, .tiers = 0}}));
  EXPECT_EQ(t.Exists({1}), std::vector{true}) << "only its own replica would go";
  // Once it is gone and forgotten so is all that it said.
  t.core().OnSessionClosed(hostile, t.now);
  t.now = t.now + options.forget_after + absl::Seconds(1);
  t.core().Tick(t.now, absl::UnixEpoch());
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 1u);
  EXPECT_EQ(t.core().Stores(t.now)[1].accounted_bytes, 0u);
}

TEST(SessionTest, SecondSessionOfAStoreEndsTheFirst) {
  TestPool t;
  const SessionId first = t.Connect(0, kMiB);
  const SessionId second = t.Connect(0, kMiB);
  EXPECT_EQ(t.core().SessionsWithOutput(), std::vector{first});
  const auto out = t.Output(first);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(out[0].has_error());
  EXPECT_THAT(t.SendRecords(first, 1, {{.id = 1, .version = 1}}),
              StatusIs(absl::StatusCode::kAborted));
  t.core().OnSessionClosed(first, t.now);
  EXPECT_OK(t.SendRecords(second, 1, {{.id = 1, .version = 1}}));
  EXPECT_EQ(t.Exists({1}), std::vector{true}) << "the old one's end is not the store's";
}

TEST(SessionTest, CutSessionTakesItsVictimsBack) {
  TestPool t;
  const SessionId s = t.Connect(0, 100 * 65536);
  std::vector<TestRecord> records;
  for (uint64_t i = 1; i <= 96; ++i) records.push_back({.id = i, .version = i});
  ASSERT_OK(t.SendRecords(s, 1, records));
  EXPECT_EQ(t.Exists({1}), std::vector{false});
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, 100 * 65536, 1), t.now));
  EXPECT_EQ(t.Exists({1}), std::vector{true}) << "the command may never have arrived";
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.Evicted(opened.session).size(), 4u) << "and is given again";
}

TEST(SessionTest, AnotherPoolsStoreIsRefused) {
  TestPool t;
  wire::SessionHello hello = t.Hello(0, kMiB, 1);
  hello.set_pool_id(std::string(16, 'p'));
  EXPECT_THAT(t.core().OnHello(hello, t.now), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(EpochTest, EveryMasterTakesTheNextOne) {
  TestPool t;
  EXPECT_EQ(t.core().epoch(), Epoch(1));
  t.RestartMaster();
  EXPECT_EQ(t.core().epoch(), Epoch(2));
  EXPECT_EQ(t.state().state.epoch, Epoch(2));
}

TEST(EpochTest, HigherEpochIsOutbidAndOpenSessionsHear) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  wire::SessionHello hello = t.Hello(1, kMiB, 1);
  hello.set_highest_epoch(41);
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(hello, t.now));
  EXPECT_EQ(opened.ack.epoch(), 42u);
  EXPECT_EQ(t.state().state.epoch, Epoch(42));
  const auto out = t.Output(s);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].epoch_changed().epoch(), 42u);
  EXPECT_OK(t.core().fenced());
}

TEST(EpochTest, EpochThatCouldNotBeOutbidIsRefused) {
  TestPool t;
  t.Connect(0, kMiB);
  for (const uint64_t epoch :
       {~uint64_t{0}, ~uint64_t{0} - 1, uint64_t{1} << 32, uint64_t{1} << 28}) {
    for (const bool elsewhere : {false, true}) {
      wire::SessionHello hello = t.Hello(1, kMiB, 1);
      hello.set_highest_epoch(epoch);
      hello.set_in_session_elsewhere(elsewhere);
      EXPECT_THAT(t.core().OnHello(hello, t.now), StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
  EXPECT_EQ(t.core().epoch(), Epoch(1));
  EXPECT_EQ(t.state().state.epoch, Epoch(1));
  EXPECT_OK(t.core().fenced());
}

TEST(EpochTest, StoreInSessionWithAHigherOneFencesThisMaster) {
  TestPool t;
  wire::SessionHello hello = t.Hello(1, kMiB, 1);
  hello.set_highest_epoch(41);
  hello.set_in_session_elsewhere(true);
  EXPECT_THAT(t.core().OnHello(hello, t.now), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(t.core().fenced(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(t.core().epoch(), Epoch(1));
}

TEST(SilenceTest, SuspectThenDeadThenServingAgain) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}}));
  t.now = t.now + absl::Seconds(3);
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.core().Stores(t.now)[0].state, StoreState::kSuspect);
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u) << "still read";
  EXPECT_EQ(t.Place({2}).refused(), std::string(1, 1)) << "nothing is placed there";
  t.now = t.now + absl::Seconds(7);
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.core().Stores(t.now)[0].state, StoreState::kDead);
  EXPECT_EQ(t.Lookup({1}).leading_run(), 0u);
  ASSERT_OK(t.SendHeartbeat(s, kMiB, 65536, 2, 0));
  t.core().Tick(t.now, absl::UnixEpoch());
  EXPECT_EQ(t.core().Stores(t.now)[0].state, StoreState::kServing);
  EXPECT_EQ(t.Lookup({1}).leading_run(), 1u);
}

TEST(SilenceTest, DeadStoreIsForgottenAfterItsTime) {
  TestPool t;
  const SessionId s = t.Connect(0, kMiB);
  ASSERT_OK(t.SendRecords(s, 1, {{.id = 1, .version = 1}}));
  t.core().OnSessionClosed(s, t.now);
  t.now = t.now + absl::Minutes(10) - absl::Seconds(1);
  t.core().Tick(t.now, absl::UnixEpoch());
  t.core().BackgroundStep(t.now);
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 1u);
  t.now = t.now + absl::Seconds(1);
  t.core().Tick(t.now, absl::UnixEpoch());
  while (t.core().BackgroundStep(t.now)) {
  }
  EXPECT_EQ(t.core().Pool(t.now).chunk_count, 0u);
  ASSERT_OK_AND_ASSIGN(const auto opened, t.core().OnHello(t.Hello(0, kMiB, 1), t.now));
  EXPECT_TRUE(opened.ack.snapshot()) << "nothing is left to resume";
}

}  // namespace
}  // namespace cistern::master
