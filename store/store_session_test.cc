#include "store/store_session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/key_hash.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/segment.h"
#include "store/version_ceiling.h"

namespace cistern::store {
namespace {

constexpr char kToken[] = "a token";
const PoolId kPool = PoolId::FromBytes("pool-of-the-test");

// A session over a real chunk store, with the master's part played by hand and time standing still.
class StoreSessionTest : public testing::Test {
 protected:
  explicit StoreSessionTest(size_t log_records = 1'000) {
    identity_.kind = wire::PEER_STORE;
    identity_.token = kToken;
    identity_.pool_id = kPool;
    identity_.incarnation = 42;
    SegmentOptions segment;
    segment.kind = SegmentKind::kMemfd;
    segment.path = "session-test";
    segment.bytes = 8 << 20;
    segment.expected_chunk_bytes = 4096;
    segment.pool_id = kPool;
    std::vector<std::unique_ptr<Segment>> segments;
    segments.push_back(*Segment::Open(segment, Wall()));
    ChunkStoreOptions options;
    options.record_log_records = log_records;
    chunks_ = *ChunkStore::Create(options, std::move(segments),
                                  *VersionCeiling::Open({dir_.path(), kPool}), Wall());
    Bind("model");
    session_ = std::make_unique<StoreSession>(identity_, *chunks_, StoreSession::Options{});
  }

  absl::Time Wall() const { return clock_.Wall(); }
  MonoTime Mono() const { return clock_.Mono(); }

  void Bind(const std::string& name) {
    NamespaceRecord record;
    record.name = name;
    record.id = DeriveNamespaceId("", name, "");
    ns_ = *chunks_->BindNamespace(record);
  }
  KeyId Put(uint8_t n) {
    KeyId id;
    id.bytes[0] = n;
    const PutItem item{{id, Shard(0)}, 4096, 0};
    PutAnswer answer;
    PutOptions options;
    options.batch = chunks_->NewBatch();
    chunks_->BeginPut(ns_, {&item, 1}, options, Wall(), {&answer, 1});
    EXPECT_EQ(answer.status, wire::CHUNK_OK);
    answer.slot.part_table()[0] = DigestOf(answer.slot.payload().data(), 4096);
    EXPECT_OK(chunks_->Commit(std::move(answer.slot), CommitOptions{}, Wall()).status());
    return id;
  }

  bool Next(wire::StoreMessage* out) { return session_->Next(Mono(), Wall(), out); }
  absl::Status Hear(const wire::MasterMessage& message) {
    return session_->OnMessage(message, Mono());
  }
  // Steps 1 to 4 of the session; the store's hello comes back.
  wire::SessionHello OpenTo4(const std::string& token = kToken, const PoolId& pool = kPool) {
    transport::LocalIdentity master;
    master.kind = wire::PEER_MASTER;
    master.token = token;
    master.pool_id = pool;
    master.peer_id = std::string(16, 'M');
    transport::ServerHandshake handshake(master, transport::ServerOffer{});
    session_->OnConnected(Mono());
    wire::StoreMessage out;
    EXPECT_TRUE(Next(&out));
    wire::MasterMessage message;
    *message.mutable_auth_ack() = *handshake.OnHello(out.hello_auth());
    hear_ack_ = Hear(message);
    if (!hear_ack_.ok()) return {};
    EXPECT_TRUE(Next(&out));
    EXPECT_OK(handshake.OnAuth(out.auth()));
    EXPECT_TRUE(Next(&out));
    EXPECT_TRUE(out.has_hello());
    EXPECT_FALSE(session_->in_session());
    return out.hello();
  }
  absl::Status Ack(bool snapshot, uint64_t resume_seq, uint64_t epoch = 1) {
    wire::MasterMessage message;
    message.mutable_hello_ack()->set_snapshot(snapshot);
    message.mutable_hello_ack()->set_resume_seq(resume_seq);
    message.mutable_hello_ack()->set_epoch(epoch);
    message.mutable_hello_ack()->set_delta_flush_us(2'000);
    message.mutable_hello_ack()->set_heartbeat_ms(500);
    return Hear(message);
  }
  // The next message that is no heartbeat; nothing (KIND_NOT_SET) when none is due.
  wire::StoreMessage NextData() {
    wire::StoreMessage out;
    while (Next(&out)) {
      if (!out.has_heartbeat()) return out;
    }
    return {};
  }

  TempDir dir_;
  FakeClock clock_;
  transport::LocalIdentity identity_;
  std::unique_ptr<ChunkStore> chunks_;
  NamespaceIndex ns_;
  std::unique_ptr<StoreSession> session_;
  absl::Status hear_ack_;
};

TEST_F(StoreSessionTest, HelloSaysWhatTheStoreHolds) {
  Put(1);
  const wire::SessionHello hello = OpenTo4();
  EXPECT_EQ(hello.store_id(), std::string(chunks_->store_id().view()));
  EXPECT_EQ(hello.incarnation(), 42u);
  ASSERT_EQ(hello.namespaces_size(), 1);
  EXPECT_EQ(hello.namespaces(0).name(), "model");
  EXPECT_EQ(hello.log_first(), 1u);
  EXPECT_EQ(hello.log_next(), 2u);
  EXPECT_EQ(hello.segments_size(), 1);
}

TEST_F(StoreSessionTest, MasterWithoutTheTokenIsRefused) {
  OpenTo4("another token");
  EXPECT_THAT(hear_ack_, StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(StoreSessionTest, MasterOfAnotherPoolIsRefused) {
  OpenTo4(kToken, PoolId::FromBytes("pool-of-others--"));
  EXPECT_THAT(hear_ack_, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StoreSessionTest, MasterBehindInEpochIsRefused) {
  OpenTo4();
  ASSERT_OK(Ack(true, 0, /*epoch=*/7));
  session_->OnClosed(Mono());
  OpenTo4();
  EXPECT_THAT(Ack(true, 0, /*epoch=*/6), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(StoreSessionTest, HeartbeatIsFirstAndRecordsWaitForTheFlushDelay) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  wire::StoreMessage out;
  ASSERT_TRUE(Next(&out));
  EXPECT_TRUE(out.has_heartbeat());
  const KeyId id = Put(9);
  EXPECT_FALSE(Next(&out));
  EXPECT_EQ(session_->NextWake(Mono()) - Mono(), absl::Milliseconds(2));
  clock_.Advance(absl::Milliseconds(2));
  ASSERT_TRUE(Next(&out));
  ASSERT_TRUE(out.has_delta());
  EXPECT_EQ(out.delta().seq_first(), 1u);
  EXPECT_EQ(out.delta().ids(), std::string(id.view()));
  EXPECT_FALSE(Next(&out));
  EXPECT_EQ(session_->NextWake(Mono()) - Mono(), absl::Milliseconds(498));
}

TEST_F(StoreSessionTest, ResumesWhereTheMasterStopped) {
  Put(1);
  const KeyId second = Put(2);
  OpenTo4();
  ASSERT_OK(Ack(false, 2));
  NextData();
  clock_.Advance(absl::Milliseconds(2));
  const wire::StoreMessage out = NextData();
  EXPECT_EQ(out.delta().seq_first(), 2u);
  EXPECT_EQ(out.delta().ids(), std::string(second.view()));
}

TEST_F(StoreSessionTest, SnapshotHoldsEverythingAndLaterRecordsFollow) {
  const KeyId a = Put(0x0f);
  const KeyId b = Put(0xf0);
  OpenTo4();
  ASSERT_OK(Ack(true, 0));
  EXPECT_EQ(NextData().snapshot_begin().seq(), 3u);
  const KeyId c = Put(3);
  clock_.Advance(absl::Milliseconds(2));
  std::vector<wire::StoreMessage> rest;
  for (wire::StoreMessage m = NextData(); m.kind_case() != wire::StoreMessage::KIND_NOT_SET;
       m = NextData()) {
    rest.push_back(m);
    clock_.Advance(absl::Milliseconds(2));
  }
  std::string paged, told;
  const wire::SnapshotEnd* end = nullptr;
  for (const wire::StoreMessage& m : rest) {
    if (m.has_snapshot_page()) paged += m.snapshot_page().records().ids();
    if (m.has_delta()) told += m.delta().ids();
    if (m.has_snapshot_end()) end = &m.snapshot_end();
  }
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->count(), paged.size() / 16);
  EXPECT_NE(paged.find(a.view()), std::string::npos);
  EXPECT_NE(paged.find(b.view()), std::string::npos);
  EXPECT_EQ(told, std::string(c.view()));
  // The xor of the ids by hand: 0x0f ^ 0xf0 (and 3, if the page was read after that put).
  const uint8_t expected = end->count() == 2 ? 0xff : 0xff ^ 3;
  EXPECT_EQ(static_cast<uint8_t>(end->xor_of_ids()[0]), expected);
}

TEST_F(StoreSessionTest, NamespaceIsToldBeforeItsFirstRecord) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  NextData();
  Bind("second");
  Put(1);
  NextData();
  clock_.Advance(absl::Milliseconds(2));
  const wire::StoreMessage out = NextData();
  ASSERT_EQ(out.delta().new_namespaces_size(), 1);
  EXPECT_EQ(out.delta().new_namespaces(0).name(), "second");
  // "model", in which nothing was ever put, is not told of: the first number is free.
  EXPECT_EQ(out.delta().namespaces(), std::string("\0\0\0\0", 4));
}

TEST_F(StoreSessionTest, IndexThatChangedHandsIsANamespaceOfItsOwn) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  NextData();
  const KeyId id = Put(1);
  ASSERT_EQ(chunks_->Remove(ns_, {id, Shard(0)}, Version(0), wire::CAUSE_REMOVED), wire::CHUNK_OK);
  chunks_->UnbindNamespace(ns_);
  clock_.Advance(absl::Milliseconds(2));
  NextData();  // begins to count the delay
  clock_.Advance(absl::Milliseconds(2));
  wire::StoreMessage out = NextData();
  ASSERT_EQ(out.delta().new_namespaces_size(), 1);
  EXPECT_EQ(out.delta().new_namespaces(0).name(), "model");
  wire::MasterMessage ack;
  ack.mutable_ack()->set_seq(3);
  ASSERT_OK(Hear(ack));
  const NamespaceIndex model = ns_;
  for (uint32_t i = 1; i < NamespaceIndex::kMaxCount; ++i) Bind("bound " + std::to_string(i));
  Bind("heir");
  ASSERT_EQ(ns_, model);
  Put(2);
  NextData();
  clock_.Advance(absl::Milliseconds(2));
  out = NextData();
  ASSERT_EQ(out.delta().new_namespaces_size(), 1);
  EXPECT_EQ(out.delta().new_namespaces(0).name(), "heir");
  EXPECT_EQ(out.delta().namespaces(), std::string("\1\0\0\0", 4));
}

TEST_F(StoreSessionTest, FenceIsAnsweredBehindEveryRecordMadeBefore) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  NextData();
  wire::MasterMessage fence;
  fence.mutable_fence()->set_command(7);
  ASSERT_OK(Hear(fence));
  wire::StoreMessage out = NextData();
  EXPECT_EQ(out.fence_done().command(), 7u);
  EXPECT_EQ(out.fence_done().record_seq(), 1u);
  // With records that would wait for the flush delay: they come first, at once.
  const KeyId id = Put(1);
  EXPECT_EQ(NextData().kind_case(), wire::StoreMessage::KIND_NOT_SET);
  fence.mutable_fence()->set_command(8);
  ASSERT_OK(Hear(fence));
  EXPECT_EQ(session_->NextWake(Mono()), Mono());
  out = NextData();
  EXPECT_EQ(out.delta().ids(), std::string(id.view()));
  out = NextData();
  EXPECT_EQ(out.fence_done().command(), 8u);
  EXPECT_EQ(out.fence_done().record_seq(), 2u);
  EXPECT_EQ(NextData().kind_case(), wire::StoreMessage::KIND_NOT_SET);
}

TEST_F(StoreSessionTest, FenceWaitsForTheSnapshotsEnd) {
  Put(1);
  OpenTo4();
  ASSERT_OK(Ack(true, 0));
  wire::MasterMessage fence;
  fence.mutable_fence()->set_command(1);
  ASSERT_OK(Hear(fence));
  std::vector<wire::StoreMessage::KindCase> kinds;
  while (true) {
    const wire::StoreMessage out = NextData();
    if (out.kind_case() == wire::StoreMessage::KIND_NOT_SET) break;
    kinds.push_back(out.kind_case());
  }
  EXPECT_THAT(kinds, testing::ElementsAre(
                         wire::StoreMessage::kSnapshotBegin, wire::StoreMessage::kSnapshotPage,
                         wire::StoreMessage::kSnapshotEnd, wire::StoreMessage::kFenceDone));
}

TEST_F(StoreSessionTest, AsksForRoomAtMostOnceInAWhile) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  NextData();
  session_->NeedBytes(1'000, 4'096, Mono());
  session_->NeedBytes(2'000, 4'096, Mono());
  EXPECT_EQ(NextData().need_bytes().bytes(), 1'000u);
  EXPECT_EQ(NextData().kind_case(), wire::StoreMessage::KIND_NOT_SET);
  clock_.Advance(StoreSession::kNeedBytesInterval);
  session_->NeedBytes(3'000, 0, Mono());
  EXPECT_EQ(NextData().need_bytes().bytes(), 3'000u);
}

TEST_F(StoreSessionTest, MalformedEvictionEndsTheSession) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  wire::MasterMessage message;
  message.mutable_evict()->set_epoch(1);
  message.mutable_evict()->set_ids("seventeen bytes!!");
  EXPECT_THAT(Hear(message), StatusIs(absl::StatusCode::kInvalidArgument));
}

class SmallLogTest : public StoreSessionTest {
 protected:
  SmallLogTest() : StoreSessionTest(/*log_records=*/1'024) {}
};

TEST_F(SmallLogTest, OverflowOfTheLogBecomesASnapshot) {
  OpenTo4();
  ASSERT_OK(Ack(false, 1));
  NextData();
  // Each put and its removal is a record: 2 x 600 overflow a log of 1,024 that nobody reads.
  for (int i = 0; i < 600; ++i) {
    const KeyId id = Put(1);
    EXPECT_EQ(chunks_->Remove(ns_, {id, Shard(0)}, Version(0), wire::CAUSE_REMOVED),
              wire::CHUNK_OK);
  }
  NextData();
  clock_.Advance(absl::Milliseconds(2));
  EXPECT_TRUE(NextData().has_snapshot_begin());
  EXPECT_EQ(NextData().snapshot_end().count(), 0u);
}

TEST_F(StoreSessionTest, SegmentCommandsAreCarriedOutAndAnsweredBehindAHeartbeat) {
  std::vector<wire::SegmentCommand> heard;
  std::optional<wire::SegmentDone> answer;
  StoreSession::Options options;
  options.segment_command = [&](const wire::SegmentCommand& command) { heard.push_back(command); };
  options.take_segment_done = [&] { return std::exchange(answer, std::nullopt); };
  session_ = std::make_unique<StoreSession>(identity_, *chunks_, std::move(options));
  OpenTo4();
  ASSERT_OK(Ack(/*snapshot=*/false, /*resume_seq=*/1, /*epoch=*/5));
  wire::StoreMessage out;
  while (Next(&out)) {
  }
  wire::MasterMessage message;
  message.mutable_segment_command()->set_command(3);
  message.mutable_segment_command()->set_epoch(5);
  message.mutable_segment_command()->mutable_mount()->set_bytes(8 << 20);
  ASSERT_OK(Hear(message));
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].mount().bytes(), uint64_t{8} << 20);
  EXPECT_FALSE(Next(&out));
  answer.emplace();
  answer->set_command(3);
  // The heartbeat shows the segments that the answer speaks of.
  ASSERT_TRUE(Next(&out));
  EXPECT_TRUE(out.has_heartbeat());
  ASSERT_TRUE(Next(&out));
  EXPECT_EQ(out.segment_done().command(), 3u);
  EXPECT_FALSE(Next(&out));

  // Of a master that was replaced: not carried out.
  message.mutable_segment_command()->set_command(4);
  message.mutable_segment_command()->set_epoch(4);
  ASSERT_OK(Hear(message));
  EXPECT_EQ(heard.size(), 1u);
  ASSERT_TRUE(Next(&out));
  EXPECT_EQ(out.segment_done().command(), 4u);
  EXPECT_EQ(out.segment_done().code(), static_cast<uint32_t>(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace cistern::store
