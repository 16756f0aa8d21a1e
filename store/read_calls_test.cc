// Calls that read much, held to their bounds: gets that verify, and listings.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/key_hash.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "store/chunk_store_testing.h"
#include "store/connection_state.h"
#include "store/get_call.h"
#include "store/list_call.h"
#include "store/service_context.h"

namespace cistern::store {
namespace {

using transport::FrameType;

// Moves by `step` each time it is read.
class SteppingClock final : public Clock {
 public:
  MonoTime Mono() const override {
    now_ = now_ + step;
    return now_;
  }
  absl::Time Wall() const override { return kTestStart; }
  void SleepFor(absl::Duration) override {}

  absl::Duration step = absl::ZeroDuration();

 private:
  mutable MonoTime now_{absl::Seconds(1000)};
};

class FakeConnection final : public transport::ServerConnection {
 public:
  const transport::PeerInfo& peer() const override { return peer_; }
  uint64_t id() const override { return 1; }

 private:
  transport::PeerInfo peer_;
};

struct Outcome {
  std::optional<absl::Status> failed;
  std::string meta;  // of the first reply
};

class FakeCall final : public transport::ServerCall {
 public:
  FakeCall(FrameType type, std::string meta, MonoTime received_at,
           transport::ServerConnection& connection, Outcome* outcome)
      : type_(type),
        meta_(std::move(meta)),
        received_at_(received_at),
        connection_(connection),
        outcome_(outcome) {}

  FrameType type() const override { return type_; }
  std::string_view meta() const override { return meta_; }
  MonoTime received_at() const override { return received_at_; }
  transport::ServerConnection& connection() override { return connection_; }
  uint64_t inline_payload_bytes() const override { return 0; }
  void ReceivePayload(uint64_t, transport::PayloadSink*,
                      absl::AnyInvocable<void(absl::Status)>) override {}
  void Reply(FrameType, std::string meta, bool, std::unique_ptr<transport::PayloadSource>,
             absl::AnyInvocable<void(absl::Status)>) override {
    if (outcome_->meta.empty()) outcome_->meta = std::move(meta);
  }
  void Fail(const absl::Status& status) override { outcome_->failed = status; }
  void ProtocolError(const absl::Status& why) override { outcome_->failed = why; }
  void OnAbort(absl::AnyInvocable<void(absl::Status)>) override {}
  bool aborted() const override { return false; }
  void Post(absl::AnyInvocable<void()> fn) override { fn(); }

 private:
  const FrameType type_;
  const std::string meta_;
  const MonoTime received_at_;
  transport::ServerConnection& connection_;
  Outcome* const outcome_;
};

class ReadCallsTest : public ChunkStoreTestBase {
 protected:
  ReadCallsTest() : peers_(PeerLedger::Options{}) {}
  void Bind(const wire::NamespaceOptions& options) {
    Open();
    connection_ = std::make_unique<FakeConnection>();
    const NamespaceRecord record = TestNamespace("read", options);
    ns_id_ = record.id;
    ns_ = *store_->BindNamespace(record);
    ref_ = *ConnectionState::Of(*connection_, *store_).Bind(record);
    context_.chunks = store_.get();
    context_.peers = &peers_;
    context_.clock = &clock_;
    context_.poke_session = [] {};
    context_.run_in_background = [](absl::AnyInvocable<void()> task) {
      task();
      return true;
    };
    context_.got_bytes = &got_bytes_;
  }
  void TearDown() override { connection_.reset(); }

  // Statuses, one each.
  std::vector<int> Get(const std::vector<uint64_t>& chunks, uint32_t bytes,
                       uint32_t deadline_ms = 10'000) {
    wire::GetRequest request;
    request.set_ns_ref(ref_);
    for (const uint64_t n : chunks) request.mutable_ids()->append(NameOf(n).id.view());
    request.mutable_target_lengths()->assign(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    request.set_deadline_ms(deadline_ms);
    Outcome outcome;
    ServeGet(context_, std::make_unique<FakeCall>(FrameType::kGet, request.SerializeAsString(),
                                                  clock_.Mono(), *connection_, &outcome));
    EXPECT_FALSE(outcome.failed.has_value()) << *outcome.failed;
    wire::GetHead head;
    EXPECT_TRUE(head.ParseFromString(outcome.meta));
    return {head.statuses().begin(), head.statuses().end()};
  }
  Outcome List() {
    wire::ListKeysRequest request;
    request.set_ns_ref(ref_);
    request.set_pattern("key");
    request.set_deadline_ms(10'000);
    Outcome outcome;
    ServeListKeys(context_,
                  std::make_unique<FakeCall>(FrameType::kListKeys, request.SerializeAsString(),
                                             clock_.Mono(), *connection_, &outcome));
    return outcome;
  }

  SteppingClock clock_;
  PeerLedger peers_;
  std::atomic<uint64_t> got_bytes_{0};
  ServiceContext context_;
  std::unique_ptr<FakeConnection> connection_;
  NamespaceId ns_id_;
  uint32_t ref_ = 0;
};

class VerifyingGetTest : public ReadCallsTest {
 protected:
  void SetUp() override {
    wire::NamespaceOptions options;
    options.set_verify(wire::VERIFY_OFF);  // so the store verifies
    Bind(options);
    for (uint64_t n = 1; n <= 3; ++n) ASSERT_NE(Put(n, 5'000), Version(0));
  }
};

TEST_F(VerifyingGetTest, WhatIsTooMuchForOneRequestIsLeftForTheNext) {
  context_.max_verified_get_bytes = 10'000;
  EXPECT_EQ(Get({1, 2, 3}, 5'000),
            (std::vector<int>{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_UNAVAILABLE}));
  EXPECT_EQ(Get({1, 2, 3}, 5'000),
            (std::vector<int>{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_OK}));
}

TEST_F(VerifyingGetTest, OneChunkIsNeverTooMuch) {
  context_.max_verified_get_bytes = 1;
  EXPECT_EQ(Get({1, 2}, 5'000), (std::vector<int>{wire::CHUNK_OK, wire::CHUNK_UNAVAILABLE}));
  EXPECT_EQ(Get({1, 2}, 5'000), (std::vector<int>{wire::CHUNK_OK, wire::CHUNK_OK}));
}

TEST_F(VerifyingGetTest, NothingIsVerifiedForACallerWhoseTimeIsOver) {
  clock_.step = absl::Milliseconds(60);  // read, 60 ms later parsed, 120 ms later looked at
  EXPECT_EQ(Get({1}, 5'000, 100), (std::vector<int>{wire::CHUNK_UNAVAILABLE}));
  clock_.step = absl::ZeroDuration();
  EXPECT_EQ(Get({1}, 5'000, 100), (std::vector<int>{wire::CHUNK_OK}));
}

TEST_F(ReadCallsTest, ListingWhoseMatchesTakeTooLongIsGivenUp) {
  wire::NamespaceOptions options;
  options.set_keep_keys(true);
  Bind(options);
  const KeyHasher hasher(ns_id_);
  for (const char* const key : {"key 1", "key 2", "key 3"}) {
    const PutItem item{ChunkName{hasher.Hash(key), Shard(0)}, 4096, 0, key};
    PutAnswer answer;
    store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1});
    ASSERT_TRUE(answer.slot);
    FillSlot(1, &answer.slot);
    ASSERT_OK(store_->Commit(std::move(answer.slot), {}, now_).status());
  }
  const Outcome sound = List();
  EXPECT_FALSE(sound.failed.has_value());
  wire::ListKeysReply reply;
  ASSERT_TRUE(reply.ParseFromString(sound.meta));
  EXPECT_EQ(reply.keys().size(), 15u);
  // All keys lie in one stretch; the third would be looked at 180 ms after its start.
  clock_.step = absl::Milliseconds(60);
  const Outcome slow = List();
  ASSERT_TRUE(slow.failed.has_value());
  EXPECT_EQ(slow.failed->code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cistern::store
