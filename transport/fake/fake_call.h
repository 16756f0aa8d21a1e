// The two ends of a fake connection and of the calls on it. Everything here belongs to the events
// of the engine; other threads come in through FakeEngine::Run.
#ifndef CISTERN_TRANSPORT_FAKE_FAKE_CALL_H_
#define CISTERN_TRANSPORT_FAKE_FAKE_CALL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/driver.h"
#include "transport/fake/engine.h"
#include "transport/group_state.h"

namespace cistern::transport {

class FakeConnection;
class FakeLane;

// A frame of an answer that waits to be delivered, with its payload.
struct FakeReply {
  FrameType type{};
  std::string meta;
  bool final = false;
  std::unique_ptr<PayloadSource> payload;
  absl::AnyInvocable<void(absl::Status)> sent;
  bool head_delivered = false;
};

// One call, seen from both ends.
struct FakeCall {
  std::shared_ptr<FakeEngine> engine;

  // --- the caller's end ---
  CallSpec spec;
  CallHandler* handler = nullptr;  // null for a preamble
  std::shared_ptr<GroupState> group;
  Channel::Preamble preamble;
  uint64_t id = 0;
  bool sent = false;
  bool ended = false;  // OnDone has been called: nothing of the caller's may be touched
  std::optional<absl::Status> cancelling;
  PayloadSink* sink = nullptr;
  std::unique_ptr<PayloadSource> source;  // payload on its way to the server

  // --- the server's end ---
  std::shared_ptr<FakeConnection> connection;
  std::string meta;
  MonoTime received_at;
  uint64_t inline_payload_bytes = 0;
  std::atomic<bool> aborted{false};
  bool served = false;
  bool answered = false;
  bool over = false;
  PayloadSink* receive_sink = nullptr;
  uint64_t receive_left = 0;
  absl::AnyInvocable<void(absl::Status)> received;
  bool copying_up = false;
  std::deque<FakeReply> replies;
  bool delivering = false;
  absl::AnyInvocable<void(absl::Status)> on_abort;
};
using FakeCallPtr = std::shared_ptr<FakeCall>;

// A listening server. Counters may be read from any thread.
struct FakeServerCore {
  FakeNetwork::ServerOptions options;
  RequestHandler* handler = nullptr;
  uint16_t port = 0;
  std::map<uint64_t, std::shared_ptr<FakeConnection>> connections;
  std::atomic<uint64_t> connection_count{0};
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> handshake_failures{0};
  std::atomic<uint64_t> protocol_errors{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> calls{0};
};

// A connection while it lasts.
class FakeConnection final : public ServerConnection,
                             public std::enable_shared_from_this<FakeConnection> {
 public:
  FakeConnection(std::shared_ptr<FakeEngine> engine, std::shared_ptr<FakeServerCore> server,
                 std::weak_ptr<FakeLane> lane, PeerInfo peer);
  const PeerInfo& peer() const override { return peer_; }
  uint64_t id() const override { return id_; }
  bool open() const { return open_; }

  // From the caller's end: each takes the time of a message.
  void SendRequest(const FakeCallPtr& call);
  void SendCancel(const FakeCallPtr& call);
  // More payload has become available.
  void PumpUp(const FakeCallPtr& call);
  // Ends it for both sides.
  void Break(const absl::Status& why);

  // From the server's end.
  void Reply(const FakeCallPtr& call, FakeReply reply);
  void Receive(const FakeCallPtr& call, uint64_t bytes, PayloadSink* sink,
               absl::AnyInvocable<void(absl::Status)> done);
  void OnAbort(const FakeCallPtr& call, absl::AnyInvocable<void(absl::Status)> fn);
  void ProtocolError(const absl::Status& why);

 private:
  // Runs `fn` after a message's time if the connection still stands.
  void Message(absl::Duration delay, absl::AnyInvocable<void()> fn);
  void MessageAt(MonoTime when, absl::AnyInvocable<void()> fn);
  void Arrive(const FakeCallPtr& call);
  void CopyUp(const FakeCallPtr& call);
  void PumpDown(const FakeCallPtr& call);
  void Deliver(const FakeCallPtr& call);
  void FinishReply(const FakeCallPtr& call);
  void EndReceive(FakeCall* call, const absl::Status& status);
  void Abort(const FakeCallPtr& call, const absl::Status& status);
  void Remove(const FakeCallPtr& call);

  const std::shared_ptr<FakeEngine> engine_;
  const std::shared_ptr<FakeServerCore> server_;
  const std::weak_ptr<FakeLane> lane_;
  const PeerInfo peer_;
  const uint64_t id_;
  bool open_ = true;
  MonoTime last_preamble_;
  std::map<uint64_t, FakeCallPtr> calls_;
  std::deque<FakeCallPtr> waiting_;  // beyond max_calls_per_connection
};

// A channel's end: one connection that is made when needed.
class FakeLane final : public Driver {
 public:
  FakeLane(IoThread* io, std::shared_ptr<FakeEngine> engine,
           const FakeNetwork::ChannelOptions& options);

  // From any thread.
  void Start(FakeCallPtr call);
  void AddPreamble(Channel::Preamble preamble);
  void CancelGroup(const GroupState* group) override;
  PeerInfo peer() const;
  absl::Status last_error() const;
  ChannelStats stats() const;

  // Events only.
  void Shutdown();
  // A frame has arrived for `call`. False: the connection is of no use any more.
  bool OnFrame(const FakeCallPtr& call, const CallHandler::Answer& answer);
  // `call` ends with `status`, or as its cancel said.
  void End(const FakeCallPtr& call, absl::Status status);
  void OnCut(const absl::Status& why);

 private:
  enum class State { kIdle, kConnecting, kUp, kBackoff, kClosed };
  // A Driver without descriptors: the engine does the work.
  void OnSubmitted() override {}
  void OnDrive(short) override {}
  Interest CurrentInterest() override { return {}; }
  bool HasBackgroundWork() override { return false; }

  std::shared_ptr<FakeLane> Self() {
    return std::static_pointer_cast<FakeLane>(shared_from_this());
  }
  void AtLater(absl::Duration delay, std::function<void(FakeLane&)> fn);
  void Add(const FakeCallPtr& call);
  void Connect();
  absl::StatusOr<std::shared_ptr<FakeConnection>> TryConnect();
  void OnConnected(std::shared_ptr<FakeConnection> connection);
  void ConnectFailed(const absl::Status& why, bool refused);
  void Send(const FakeCallPtr& call);
  void SendPreamble(size_t index);
  void Cancel(const FakeCallPtr& call, const absl::Status& why);
  void OnDeadline(uint64_t id);
  absl::Status CannotReach() const;

  const std::shared_ptr<FakeEngine> engine_;
  const FakeNetwork::ChannelOptions options_;
  State state_ = State::kIdle;
  std::shared_ptr<FakeConnection> connection_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, FakeCallPtr> calls_;
  std::vector<Channel::Preamble> preambles_;
  int failures_ = 0;
  bool refused_ = false;
  bool answered_ = false;
  bool ever_up_ = false;
  absl::Status last_failure_;
  std::atomic<uint64_t> connections_{0};
  std::atomic<uint64_t> reconnects_{0};
  mutable Mutex mutex_;
  PeerInfo peer_ ABSL_GUARDED_BY(mutex_);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FAKE_FAKE_CALL_H_
