// Mutable namespaces over several stores: where a replace goes, and which of two copies counts.
#include <cstring>
#include <string>
#include <vector>

#include "base/columns.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kLength = 65'536;

class MutableChunksTest : public testing::Test {
 protected:
  MutableChunksTest() {
    wire::OpenNamespaceRequest request;
    request.set_name("mutable");
    request.mutable_options()->set_mutable_chunks(true);
    wire::OpenNamespaceReply reply;
    EXPECT_OK(t_.core().OpenNamespace(request, &reply));
    ns_ref_ = reply.ns_ref();
    ns_ = reply.info();
  }

  // One record of chunk `id` in the mutable namespace.
  struct Told {
    uint64_t id = 0;
    uint64_t version = 0;
    uint64_t mutation = 0;
    bool gone = false;
    uint32_t length = kLength;
  };
  absl::Status Tell(SessionId s, uint64_t seq, const Told& told) {
    wire::StoreMessage message;
    FillDelta(told, message.mutable_delta());
    message.mutable_delta()->set_seq_first(seq);
    return t_.Send(s, message);
  }
  void FillDelta(const Told& told, wire::Delta* delta) const {
    const TestRecord record{told.id, told.version, told.gone ? TierMask{0} : kDram, told.length};
    TestPool::FillRecords({record}, delta);
    delta->set_mutations(&told.mutation, sizeof(told.mutation));
    // Each of these deltas announces the namespace again: the last of the session's list is meant.
    *delta->add_new_namespaces() = ns_;
    const uint32_t number = ++announced_;
    delta->set_namespaces(&number, sizeof(number));
  }
  SessionId Connect(int n, uint64_t incarnation = 1) {
    announced_ = 0;
    return t_.Connect(n, 64 * kMiB, incarnation);
  }
  // The store comes back as another process that still holds `told`.
  SessionId ComeBackWith(int n, uint64_t incarnation, const Told& told) {
    announced_ = 0;
    auto opened = t_.core().OnHello(t_.Hello(n, 64 * kMiB, incarnation), t_.now);
    EXPECT_OK(opened.status());
    EXPECT_TRUE(opened->ack.snapshot());
    wire::StoreMessage begin, page, end;
    begin.mutable_snapshot_begin()->set_snapshot_id(1);
    begin.mutable_snapshot_begin()->set_seq(1);
    page.mutable_snapshot_page()->set_snapshot_id(1);
    FillDelta(told, page.mutable_snapshot_page()->mutable_records());
    end.mutable_snapshot_end()->set_snapshot_id(1);
    end.mutable_snapshot_end()->set_count(1);
    end.mutable_snapshot_end()->set_xor_of_ids(std::string(TestId(told.id).view()));
    EXPECT_OK(t_.Send(opened->session, begin));
    EXPECT_OK(t_.Send(opened->session, page));
    EXPECT_OK(t_.Send(opened->session, end));
    return opened->session;
  }
  wire::PlaceReply Place(uint64_t id, bool replace, uint64_t operation = 0) {
    wire::PlaceRequest request;
    request.set_map_version(1);
    request.set_ns_ref(ns_ref_);
    request.set_ids(PackIds({TestId(id)}));
    request.set_lengths(&kLength, sizeof(kLength));
    OperationId op;
    const uint64_t number = operation != 0 ? operation : ++next_operation_;
    std::memcpy(op.bytes.data(), &number, sizeof(number));
    request.set_operation_id(op.bytes.data(), op.bytes.size());
    request.set_replace(replace);
    wire::PlaceReply reply;
    PlaceCall call(request, &reply);
    EXPECT_OK(call.Prepare());
    while (!call.Step(t_.core(), t_.now)) {
    }
    EXPECT_OK(call.status());
    return reply;
  }
  static int StoreOf(const wire::PlaceReply& reply) {
    return static_cast<int16_t>(TestPool::StoreAt(reply.stores(), 0).value);
  }
  // Where a lookup sends its reader; -1 = nowhere.
  int Lookup(uint64_t id) {
    wire::LookupRequest request;
    request.set_map_version(1);
    request.set_ns_ref(ns_ref_);
    request.set_ids(PackIds({TestId(id)}));
    request.set_no_lease(true);
    wire::LookupReply reply;
    LookupCall call(request, &reply);
    EXPECT_OK(call.Prepare());
    while (!call.Step(t_.core(), t_.now)) {
    }
    if (reply.stores().empty()) return -1;
    return static_cast<int16_t>(TestPool::StoreAt(reply.stores(), 0).value);
  }
  // Version of the one chunk that the session is told to drop; 0 = none.
  uint64_t Dropped(SessionId s) {
    uint64_t version = 0;
    for (const wire::MasterMessage& message : t_.Output(s)) {
      if (!message.has_evict()) continue;
      EXPECT_EQ(message.evict().versions().size(), sizeof(version));
      std::memcpy(&version, message.evict().versions().data(), sizeof(version));
    }
    return version;
  }
  void SweepAll() {
    while (t_.core().BackgroundStep(t_.now)) {
    }
  }

  TestPool t_;
  uint32_t ns_ref_ = 0;
  wire::NamespaceInfo ns_;
  mutable uint32_t announced_ = 0;  // number 0 is the other namespace, told in the hello
  uint64_t next_operation_ = 0;
};

TEST_F(MutableChunksTest, ReplaceGoesToTheStoreThatHasTheChunk) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 1, .mutation = 5}));
  Connect(1);  // emptier
  const wire::PlaceReply reply = Place(1, /*replace=*/true);
  EXPECT_TRUE(BitmapGet(reply.present(), 0));
  EXPECT_EQ(StoreOf(reply), 0);
  EXPECT_GT(Place(1, true).mutation(), reply.mutation());
}

TEST_F(MutableChunksTest, RoomForTheNewBytesIsNotMadeOfTheOldOnes) {
  announced_ = 0;
  const SessionId a = t_.Connect(0, 4 * kLength);
  // Three quarters full, and a fourth chunk to come: above the high watermark.
  for (uint64_t n = 1; n <= 3; ++n) {
    ASSERT_OK(Tell(a, n, {.id = n, .version = n, .mutation = n}));
  }
  EXPECT_EQ(StoreOf(Place(1, true)), 0);
  // The oldest is chunk 1 itself: the next one goes.
  EXPECT_EQ(t_.Evicted(a), std::vector{TestId(2)});
  EXPECT_EQ(Lookup(1), 0);
}

TEST_F(MutableChunksTest, ReplaceInAnImmutableNamespaceIsRefused) {
  wire::PlaceRequest request;
  request.set_map_version(1);
  request.set_ns_ref(t_.ns_ref());
  request.set_operation_id(std::string(16, 'o'));
  request.set_replace(true);
  wire::PlaceReply reply;
  PlaceCall call(request, &reply);
  ASSERT_OK(call.Prepare());
  EXPECT_TRUE(call.Step(t_.core(), t_.now));
  EXPECT_THAT(call.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("test")));
}

TEST_F(MutableChunksTest, ReplaceStaysWhereTheChunkIsToldToGo) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 1, .mutation = 5}));
  Connect(1);
  uint64_t page = 0;
  t_.core().EvictSlice(NamespaceIndex(ns_ref_ - 1), UINT64_MAX, &page, t_.now);
  EXPECT_EQ(Lookup(1), -1);
  EXPECT_EQ(StoreOf(Place(1, true)), 0);
  // A put of it too: but it is sent, for the old one is as good as gone.
  const wire::PlaceReply put = Place(1, false);
  EXPECT_FALSE(BitmapGet(put.present(), 0));
  EXPECT_EQ(StoreOf(put), 0);
  // The new bytes are there before the old ones are reported gone.
  ASSERT_OK(Tell(a, 2, {.id = 1, .version = 2, .mutation = 6, .length = 2 * kLength}));
  ASSERT_OK(Tell(a, 3, {.id = 1, .version = 1, .gone = true}));
  EXPECT_EQ(Lookup(1), 0);
  EXPECT_EQ(t_.core().Stores(t_.now)[0].evicting_bytes, 0u);
  EXPECT_EQ(t_.core().Stores(t_.now)[0].accounted_bytes, 2 * kLength);
  EXPECT_EQ(t_.core().Pool(t_.now).payload_bytes, 2 * kLength);
}

TEST_F(MutableChunksTest, ReplacesOfOneAbsentChunkMeetInOneStore) {
  Connect(0);
  Connect(1);
  const int store = StoreOf(Place(1, true));
  ASSERT_GE(store, 0);
  EXPECT_EQ(StoreOf(Place(1, true)), store);
  EXPECT_TRUE(BitmapGet(Place(1, false).in_progress(), 0));
}

TEST_F(MutableChunksTest, StoreThatWasAwayComesBackWithTheOldBytes) {
  const SessionId a = Connect(0);
  const uint64_t before = Place(9, false).mutation();
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 50, .mutation = before}));
  const SessionId b = Connect(1);
  t_.core().OnSessionClosed(a, t_.now);
  const wire::PlaceReply placed = Place(1, true);
  EXPECT_EQ(StoreOf(placed), 1);
  EXPECT_FALSE(BitmapGet(placed.present(), 0));
  ASSERT_OK(Tell(b, 1, {.id = 1, .version = 2, .mutation = placed.mutation()}));
  EXPECT_EQ(Lookup(1), 1);
  // Its version is the greater: versions of two stores say nothing.
  const SessionId again = ComeBackWith(0, 2, {.id = 1, .version = 50, .mutation = before});
  EXPECT_EQ(Lookup(1), 1);
  EXPECT_EQ(Dropped(again), 50u);
  SweepAll();
  EXPECT_EQ(Lookup(1), 1);
  EXPECT_EQ(t_.core().Stores(t_.now)[0].chunk_count, 0u);
}

TEST_F(MutableChunksTest, CutSessionOfTheSameProcessResumesNothingOld) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 50, .mutation = 5}));
  Connect(1);
  t_.core().OnSessionClosed(a, t_.now);
  const uint64_t mutation = Place(1, true).mutation();  // on its way to the other store
  // The same process, all of its log at hand: a snapshot all the same, and what it has is hidden.
  const SessionId again = ComeBackWith(0, 1, {.id = 1, .version = 50, .mutation = 5});
  EXPECT_EQ(Lookup(1), -1);
  EXPECT_EQ(Dropped(again), 50u);
  SweepAll();
  EXPECT_EQ(Lookup(1), -1);
  // A write by a later placement is a write like any other.
  EXPECT_GT(Place(2, true).mutation(), mutation);
  ASSERT_OK(Tell(again, 1, {.id = 2, .version = 51, .mutation = mutation + 1}));
  EXPECT_EQ(Lookup(2), 0);
}

TEST_F(MutableChunksTest, RemovedMeanwhileTheOldBytesDoNotComeBack) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 50, .mutation = 5}));
  const SessionId b = Connect(1);
  t_.core().OnSessionClosed(a, t_.now);
  const uint64_t mutation = Place(1, true).mutation();
  ASSERT_OK(Tell(b, 1, {.id = 1, .version = 2, .mutation = mutation}));
  ASSERT_OK(Tell(b, 2, {.id = 1, .version = 2, .gone = true}));
  ComeBackWith(0, 2, {.id = 1, .version = 50, .mutation = 5});
  EXPECT_EQ(Lookup(1), -1);
  SweepAll();
  EXPECT_EQ(Lookup(1), -1);
}

// A busy master gives out more numbers in its life than 32 bits hold.
TEST_F(MutableChunksTest, NewMastersNumbersFollowThoseOfALongLife) {
  const uint64_t first = Place(1, true).mutation();
  t_.pool().last_mutation = first + 60'000'000'000;
  const uint64_t last = Place(1, true).mutation();
  EXPECT_EQ(last, first + 60'000'000'001);
  t_.RestartMaster();
  wire::OpenNamespaceRequest request;
  request.set_name("mutable");
  wire::OpenNamespaceReply reply;
  ASSERT_OK(t_.core().OpenNamespace(request, &reply));
  ns_ref_ = reply.ns_ref();
  EXPECT_GT(Place(1, true).mutation(), last);
}

TEST_F(MutableChunksTest, NewMasterTellsTheNewerByTheMutation) {
  Connect(0);
  Connect(1);
  const uint64_t old = Place(1, true).mutation();
  t_.RestartMaster();
  wire::OpenNamespaceRequest request;
  request.set_name("mutable");
  wire::OpenNamespaceReply reply;
  ASSERT_OK(t_.core().OpenNamespace(request, &reply));
  EXPECT_TRUE(reply.info().options().mutable_chunks());
  ns_ref_ = reply.ns_ref();
  // Whichever of the two comes first.
  const SessionId a = ComeBackWith(0, 1, {.id = 1, .version = 50, .mutation = old});
  EXPECT_EQ(Lookup(1), 0);
  const SessionId b = ComeBackWith(1, 1, {.id = 1, .version = 3, .mutation = old + 1});
  EXPECT_EQ(Lookup(1), 1);
  EXPECT_EQ(Dropped(a), 50u);
  EXPECT_EQ(Dropped(b), 0u);
  EXPECT_GT(Place(2, true).mutation(), old + 1);
}

TEST_F(MutableChunksTest, OlderCopyThatComesLaterIsDropped) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 1, .mutation = 6, .length = kLength}));
  const SessionId b = Connect(1);
  // A put that was placed before, in another store, and took its time.
  ASSERT_OK(Tell(b, 1, {.id = 1, .version = 99, .mutation = 5, .length = 2 * kLength}));
  EXPECT_EQ(Lookup(1), 0);
  EXPECT_EQ(Dropped(b), 99u);
  EXPECT_EQ(t_.core().Pool(t_.now).chunk_count, 1u);
  EXPECT_EQ(t_.core().Pool(t_.now).payload_bytes, kLength);
}

TEST_F(MutableChunksTest, CommandToDropThatWasLostIsMadeUpFor) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 1, .mutation = 6}));
  const SessionId b = Connect(1);
  ASSERT_OK(Tell(b, 1, {.id = 1, .version = 99, .mutation = 5}));
  EXPECT_EQ(Dropped(b), 99u);
  t_.core().OnSessionClosed(b, t_.now);  // whether it has heard it is not known
  ASSERT_OK(Tell(a, 2, {.id = 1, .version = 1, .gone = true}));
  const SessionId again = ComeBackWith(1, 1, {.id = 1, .version = 99, .mutation = 5});
  EXPECT_EQ(Lookup(1), -1);
  EXPECT_EQ(Dropped(again), 99u);
}

TEST_F(MutableChunksTest, MutationsOfGoneChunksAreForgotten) {
  const SessionId a = Connect(0);
  ASSERT_OK(Tell(a, 1, {.id = 1, .version = 1, .mutation = 6}));
  EXPECT_EQ(t_.pool().mutations.size(), 1u);
  ASSERT_OK(Tell(a, 2, {.id = 1, .version = 1, .gone = true}));
  EXPECT_EQ(t_.pool().mutations.size(), 0u);
}

}  // namespace
}  // namespace cistern::master
