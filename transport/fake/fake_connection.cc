#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/types.pb.h"
#include "transport/fake/fake_call.h"

namespace cistern::transport {
namespace {

constexpr size_t kMaxPieces = 64;

uint64_t NextConnectionId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Copies exactly `bytes` from `source` into `sink` (nullptr: nowhere), telling it as it goes.
absl::Status Copy(PayloadSource* source, PayloadSink* sink, uint64_t bytes) {
  std::vector<iovec> from;
  std::vector<iovec> to;
  while (bytes > 0) {
    from.clear();
    source->NextPieces(static_cast<size_t>(bytes), kMaxPieces, &from);
    for (iovec piece : from) {
      bytes -= piece.iov_len;
      while (sink != nullptr && piece.iov_len > 0) {
        to.clear();
        sink->NextBuffers(piece.iov_len, kMaxPieces, &to);
        if (to.empty()) return absl::InvalidArgumentError("more payload than was asked for");
        size_t landed = 0;
        for (const iovec& target : to) {
          std::memcpy(target.iov_base, static_cast<char*>(piece.iov_base) + landed, target.iov_len);
          landed += target.iov_len;
        }
        CISTERN_CHECK(landed <= piece.iov_len);
        piece.iov_base = static_cast<char*>(piece.iov_base) + landed;
        piece.iov_len -= landed;
        CISTERN_RETURN_IF_ERROR(sink->Landed(landed));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StatusOf(const std::string& meta) {
  wire::ErrorReply error;
  if (!error.ParseFromString(meta)) return absl::InternalError("malformed error reply");
  return absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
}

// The handler's end of a call.
class FakeServerCall final : public ServerCall {
 public:
  explicit FakeServerCall(FakeCallPtr call) : call_(std::move(call)) {}
  ~FakeServerCall() override {
    if (!ended_ && !call_->aborted) Fail(absl::InternalError("the request was not answered"));
  }
  FrameType type() const override { return call_->spec.type; }
  std::string_view meta() const override { return call_->meta; }
  MonoTime received_at() const override { return call_->received_at; }
  ServerConnection& connection() override { return *call_->connection; }
  uint64_t inline_payload_bytes() const override { return call_->inline_payload_bytes; }
  void ReceivePayload(uint64_t bytes, PayloadSink* sink,
                      absl::AnyInvocable<void(absl::Status)> done) override {
    call_->engine->Run([call = call_, bytes, sink, done = std::move(done)]() mutable {
      call->connection->Receive(call, bytes, sink, std::move(done));
    });
  }
  void Reply(FrameType type, std::string meta, bool final, std::unique_ptr<PayloadSource> payload,
             absl::AnyInvocable<void(absl::Status)> sent) override {
    ended_ = ended_ || final;
    FakeReply reply{type, std::move(meta), final, std::move(payload), std::move(sent)};
    call_->engine->Run([call = call_, reply = std::move(reply)]() mutable {
      call->connection->Reply(call, std::move(reply));
    });
  }
  void Fail(const absl::Status& status) override {
    wire::ErrorReply error;
    error.set_code(static_cast<uint32_t>(status.code()));
    error.set_message(std::string(status.message()));
    Reply(FrameType::kError, error.SerializeAsString(), true, nullptr, nullptr);
  }
  void ProtocolError(const absl::Status& why) override {
    ended_ = true;
    // Not in the middle of what the handler is doing.
    call_->engine->At(call_->engine->Now(),
                      [call = call_, why] { call->connection->ProtocolError(why); });
  }
  void OnAbort(absl::AnyInvocable<void(absl::Status)> fn) override {
    call_->engine->Run([call = call_, fn = std::move(fn)]() mutable {
      call->connection->OnAbort(call, std::move(fn));
    });
  }
  bool aborted() const override { return call_->aborted; }
  void Post(absl::AnyInvocable<void()> fn) override { call_->engine->At(call_->engine->Now(), fn); }

 private:
  const FakeCallPtr call_;
  bool ended_ = false;
};

}  // namespace

FakeConnection::FakeConnection(std::shared_ptr<FakeEngine> engine,
                               std::shared_ptr<FakeServerCore> server, std::weak_ptr<FakeLane> lane,
                               PeerInfo peer)
    : engine_(std::move(engine)),
      server_(std::move(server)),
      lane_(std::move(lane)),
      peer_(std::move(peer)),
      id_(NextConnectionId()) {}

void FakeConnection::Message(absl::Duration delay, absl::AnyInvocable<void()> fn) {
  MessageAt(engine_->Now() + delay, std::move(fn));
}

void FakeConnection::MessageAt(MonoTime when, absl::AnyInvocable<void()> fn) {
  engine_->At(when, [self = shared_from_this(), fn = std::move(fn)]() mutable {
    if (!self->open_) return;
    if (self->engine_->CutsNow()) {
      self->Break(absl::UnavailableError("the network cut it"));
    } else {
      fn();
    }
  });
}

// --- requests ---

void FakeConnection::SendRequest(const FakeCallPtr& call) {
  call->connection = shared_from_this();
  // Preambles come before all others, in their order; calls may overtake each other.
  const MonoTime arrival = std::max(engine_->Now() + engine_->Delay(), last_preamble_);
  if (call->handler == nullptr) last_preamble_ = arrival;
  MessageAt(arrival, [this, call] { Arrive(call); });
}

void FakeConnection::Arrive(const FakeCallPtr& call) {
  if (call->over) return;  // cancelled before it came
  if (calls_.size() >= server_->options.limits.max_calls_per_connection) {
    waiting_.push_back(call);
    return;
  }
  calls_.emplace(call->id, call);
  call->served = true;
  call->meta = call->spec.meta;
  call->received_at = engine_->Now();
  call->inline_payload_bytes = call->source == nullptr ? 0 : call->source->remaining();
  server_->calls.fetch_add(1);
  server_->handler->OnRequest(std::make_unique<FakeServerCall>(call));
}

void FakeConnection::SendCancel(const FakeCallPtr& call) {
  Message(engine_->Delay(), [this, call] {
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), call), waiting_.end());
    if (!call->over) Abort(call, absl::CancelledError("the caller cancelled"));
    Message(engine_->Delay(), [this, call] {
      if (const auto lane = lane_.lock()) lane->End(call, absl::CancelledError("cancelled"));
    });
  });
}

void FakeConnection::Remove(const FakeCallPtr& call) {
  call->over = true;
  calls_.erase(call->id);
  if (!waiting_.empty() && open_) {
    const FakeCallPtr next = waiting_.front();
    waiting_.pop_front();
    Message(absl::ZeroDuration(), [this, next] { Arrive(next); });
  }
}

// --- payload from the caller ---

void FakeConnection::Receive(const FakeCallPtr& call, uint64_t bytes, PayloadSink* sink,
                             absl::AnyInvocable<void(absl::Status)> done) {
  if (call->over || call->answered) {
    done(absl::CancelledError("the call has ended"));
    return;
  }
  if (bytes == 0) {
    done(absl::OkStatus());
    return;
  }
  CISTERN_CHECK(call->receive_sink == nullptr);
  call->receive_sink = sink;
  call->receive_left = bytes;
  call->received = std::move(done);
  PumpUp(call);
}

void FakeConnection::PumpUp(const FakeCallPtr& call) {
  if (call->copying_up || call->receive_sink == nullptr || call->source == nullptr ||
      call->source->remaining() == 0) {
    return;
  }
  call->copying_up = true;
  Message(engine_->Delay() + engine_->CopyDelay(), [this, call] { CopyUp(call); });
}

void FakeConnection::CopyUp(const FakeCallPtr& call) {
  call->copying_up = false;
  // The caller's memory is gone with its call; the server's with the receive.
  if (call->ended || call->over || call->receive_sink == nullptr || call->source == nullptr) {
    return;
  }
  const uint64_t bytes = std::min(
      {call->source->remaining(), call->receive_left, engine_->options().payload_piece_bytes});
  server_->bytes_in.fetch_add(bytes);
  call->receive_left -= bytes;
  const absl::Status status = Copy(call->source.get(), call->receive_sink, bytes);
  if (!status.ok()) {
    EndReceive(call.get(), status);
    ProtocolError(status);
    return;
  }
  if (call->receive_left == 0) EndReceive(call.get(), absl::OkStatus());
  PumpUp(call);
}

void FakeConnection::EndReceive(FakeCall* call, const absl::Status& status) {
  if (call->receive_sink == nullptr) return;
  call->receive_sink = nullptr;
  auto done = std::move(call->received);
  call->received = nullptr;
  done(status);
}

// --- answers ---

void FakeConnection::Reply(const FakeCallPtr& call, FakeReply reply) {
  if (call->over || call->answered) {
    reply.payload.reset();
    if (reply.sent != nullptr) reply.sent(absl::UnavailableError("the call has ended"));
    return;
  }
  const bool final = reply.final;
  call->replies.push_back(std::move(reply));
  if (final) {
    call->answered = true;
    call->on_abort = nullptr;
    EndReceive(call.get(), absl::CancelledError("the call was answered"));
  }
  PumpDown(call);
}

void FakeConnection::PumpDown(const FakeCallPtr& call) {
  if (call->delivering || call->replies.empty()) return;
  call->delivering = true;
  const FakeReply& reply = call->replies.front();
  const bool payload = reply.payload != nullptr && reply.payload->remaining() > 0;
  // A preamble's answer comes before those of the calls behind it.
  absl::Duration delay = call->handler == nullptr ? absl::ZeroDuration() : engine_->Delay();
  if (payload) delay += engine_->CopyDelay();
  Message(delay, [this, call] { Deliver(call); });
}

// One frame: the reply's own, or one piece of its payload.
void FakeConnection::Deliver(const FakeCallPtr& call) {
  call->delivering = false;
  if (call->over || call->replies.empty()) return;
  const auto lane = lane_.lock();
  if (lane == nullptr) return;
  FakeReply& reply = call->replies.front();
  const uint64_t left = reply.payload == nullptr ? 0 : reply.payload->remaining();
  const bool in_frame = reply.final && left <= kInlinePayloadBytes && !reply.head_delivered;
  CallHandler::Answer answer{reply.type, reply.final, reply.meta, 0};
  if (in_frame) {
    answer.payload_bytes = left;
  } else if (reply.head_delivered) {
    answer.payload_bytes = std::min(left, engine_->options().payload_piece_bytes);
    answer.type = FrameType::kData;
    answer.meta = {};
    answer.final = reply.final && answer.payload_bytes == left;
  } else {
    answer.final = reply.final && left == 0;
  }
  reply.head_delivered = true;
  if (reply.type == FrameType::kError) {
    const absl::Status status = StatusOf(reply.meta);
    FinishReply(call);
    if (call->handler == nullptr) {
      Break(status);  // a preamble that failed
    } else {
      lane->End(call, status);
    }
    return;
  }
  // After its end the caller's memory is not touched: the stream goes nowhere.
  const bool wanted = !call->ended && !call->cancelling.has_value();
  if (wanted && !lane->OnFrame(call, answer)) return;
  if (answer.payload_bytes > 0) {
    server_->bytes_out.fetch_add(answer.payload_bytes);
    PayloadSink* const sink = wanted && !call->ended ? call->sink : nullptr;
    const absl::Status status = Copy(reply.payload.get(), sink, answer.payload_bytes);
    if (!status.ok()) {
      lane->End(call, status);
      Break(status);
      return;
    }
  }
  const bool final = answer.final;
  if (reply.payload == nullptr || reply.payload->remaining() == 0) FinishReply(call);
  if (final) {
    lane->End(call, absl::OkStatus());
  } else {
    PumpDown(call);
  }
}

// The front reply has left.
void FakeConnection::FinishReply(const FakeCallPtr& call) {
  FakeReply reply = std::move(call->replies.front());
  call->replies.pop_front();
  reply.payload.reset();
  if (reply.sent != nullptr) reply.sent(absl::OkStatus());
  if (call->answered && call->replies.empty() && !call->over) Remove(call);
}

// --- ends ---

void FakeConnection::OnAbort(const FakeCallPtr& call, absl::AnyInvocable<void(absl::Status)> fn) {
  if (call->aborted) {
    fn(absl::CancelledError("the call was aborted"));
  } else if (!call->answered && !call->over) {
    call->on_abort = std::move(fn);
  }
}

void FakeConnection::Abort(const FakeCallPtr& call, const absl::Status& status) {
  const bool answered = std::exchange(call->answered, true);
  call->over = true;
  if (!answered) call->aborted = true;
  std::deque<FakeReply> replies;
  replies.swap(call->replies);
  EndReceive(call.get(), status);
  for (FakeReply& reply : replies) {
    reply.payload.reset();
    if (reply.sent != nullptr) reply.sent(status);
  }
  auto on_abort = std::move(call->on_abort);
  call->on_abort = nullptr;
  if (on_abort != nullptr && !answered) on_abort(status);
  Remove(call);
}

void FakeConnection::ProtocolError(const absl::Status& why) {
  if (!open_) return;
  server_->protocol_errors.fetch_add(1);
  Break(why);
}

void FakeConnection::Break(const absl::Status& why) {
  if (!open_) return;
  open_ = false;
  const std::shared_ptr<FakeConnection> self = shared_from_this();
  const absl::Status status = absl::UnavailableError(why.message());
  waiting_.clear();
  std::map<uint64_t, FakeCallPtr> calls;
  calls.swap(calls_);
  for (const auto& [id, call] : calls) Abort(call, status);
  server_->handler->OnDisconnected(*this);
  server_->connections.erase(id_);
  server_->connection_count.fetch_sub(1);
  if (const auto lane = lane_.lock()) lane->OnCut(why);
}

}  // namespace cistern::transport
