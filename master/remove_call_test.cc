// The core: removal by key and by namespace, answered by the stores' records.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;

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

// A release is worked off in slices, and behind the answer where it is long; whoever removes next
// finds none of it.
TEST(RemoveAllTest, WhatWasReleasedBeforeIsNotLeased) {
  constexpr uint64_t kChunks = 400;
  constexpr uint64_t kChunk = 65'536;
  MasterOptions options;
  options.lease_share = 1.0;
  TestPool t(options);
  const SessionId s = t.Connect(0, 2 * kChunks * kChunk);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, kChunks, 1)));
  std::vector<uint64_t> ids;
  for (uint64_t i = 1; i <= kChunks; ++i) ids.push_back(i);
  const wire::LookupReply found = t.Lookup(ids);
  ASSERT_EQ(found.leased_keys(), kChunks);
  ASSERT_TRUE(t.Release(found.lease_id()));
  wire::RemoveRequest request;
  request.set_map_version(1);
  request.set_ns_ref(t.ns_ref());
  request.set_all(true);
  wire::RemoveReply reply;
  RemoveCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  for (int steps = 0; !call.Step(t.core(), t.now); ++steps) {
    ASSERT_LT(steps, 1'000);
    if (call.blocked()) AnswerFences(t, s);
  }
  EXPECT_EQ(reply.refused_count(), 0u);
  EXPECT_EQ(t.Evicted(s).size(), kChunks);
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

}  // namespace
}  // namespace cistern::master
