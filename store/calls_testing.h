// What tests of the data plane's calls need: a store in memory, and calls without a wire.
#ifndef CISTERN_STORE_CALLS_TESTING_H_
#define CISTERN_STORE_CALLS_TESTING_H_

#include <sys/uio.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/chunk_store_testing.h"
#include "store/connection_state.h"
#include "store/service_context.h"

namespace cistern::store {

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
  bool answered = false;
  std::string meta;     // of the first reply
  std::string payload;  // of the same
};

class FakeCall final : public transport::ServerCall {
 public:
  FakeCall(transport::FrameType type, std::string meta, MonoTime received_at,
           transport::ServerConnection& connection, Outcome* outcome,
           const std::atomic<bool>& aborted)
      : type_(type),
        meta_(std::move(meta)),
        received_at_(received_at),
        connection_(connection),
        outcome_(outcome),
        aborted_(aborted) {}

  transport::FrameType type() const override { return type_; }
  std::string_view meta() const override { return meta_; }
  MonoTime received_at() const override { return received_at_; }
  transport::ServerConnection& connection() override { return connection_; }
  uint64_t inline_payload_bytes() const override { return 0; }
  void ReceivePayload(uint64_t, transport::PayloadSink*,
                      absl::AnyInvocable<void(absl::Status)>) override {}
  void Reply(transport::FrameType, std::string meta, bool,
             std::unique_ptr<transport::PayloadSource> payload,
             absl::AnyInvocable<void(absl::Status)>) override {
    if (std::exchange(outcome_->answered, true)) return;
    outcome_->meta = std::move(meta);
    while (payload != nullptr && payload->remaining() != 0) {
      std::vector<iovec> pieces;
      payload->NextPieces(1 << 20, 16, &pieces);
      for (const iovec& piece : pieces) {
        outcome_->payload.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      }
    }
  }
  void Fail(const absl::Status& status) override { outcome_->failed = status; }
  void ProtocolError(const absl::Status& why) override { outcome_->failed = why; }
  void OnAbort(absl::AnyInvocable<void(absl::Status)>) override {}
  bool aborted() const override { return aborted_; }
  void Post(absl::AnyInvocable<void()> fn) override { fn(); }

 private:
  const transport::FrameType type_;
  const std::string meta_;
  const MonoTime received_at_;
  transport::ServerConnection& connection_;
  Outcome* const outcome_;
  const std::atomic<bool>& aborted_;
};

// A store with one bound namespace. What runs in the background runs at once.
class CallsTestBase : public ChunkStoreTestBase {
 protected:
  CallsTestBase() : peers_(PeerLedger::Options{}) {}
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
    context_.run_verifying = context_.run_in_background;
    context_.got_bytes = &got_bytes_;
  }
  void TearDown() override { connection_.reset(); }

  // Gives a call to its code; `outcome` must live until it is answered.
  template <typename Message>
  std::unique_ptr<FakeCall> Call(transport::FrameType type, const Message& message,
                                 Outcome* outcome) {
    return std::make_unique<FakeCall>(type, message.SerializeAsString(), clock_.Mono(),
                                      *connection_, outcome, aborted_);
  }

  SteppingClock clock_;
  std::atomic<bool> aborted_{false};  // all calls
  PeerLedger peers_;
  std::atomic<uint64_t> got_bytes_{0};
  ServiceContext context_;
  std::unique_ptr<FakeConnection> connection_;
  NamespaceId ns_id_;
  uint32_t ref_ = 0;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CALLS_TESTING_H_
