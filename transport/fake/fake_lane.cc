#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/fake/fake_call.h"
#include "transport/handshake.h"

namespace cistern::transport {
namespace {

constexpr absl::Duration kMaxBackoff = absl::Milliseconds(500);

absl::Status MarkNeverSent(absl::Status status) {
  if (!status.ok()) status.SetPayload(kNeverSentUrl, absl::Cord());
  return status;
}

}  // namespace

FakeLane::FakeLane(IoThread* io, std::shared_ptr<FakeEngine> engine,
                   const FakeNetwork::ChannelOptions& options)
    : Driver(io), engine_(std::move(engine)), options_(options) {}

// --- from any thread ---

void FakeLane::Start(FakeCallPtr call) {
  engine_->At(engine_->Now(), [self = Self(), call = std::move(call)] { self->Add(call); });
}

void FakeLane::AddPreamble(Channel::Preamble preamble) {
  engine_->At(engine_->Now(), [self = Self(), preamble = std::move(preamble)]() mutable {
    self->preambles_.push_back(std::move(preamble));
    if (self->state_ == State::kUp) self->SendPreamble(self->preambles_.size() - 1);
  });
}

void FakeLane::CancelGroup(const GroupState* group) {
  engine_->At(engine_->Now(), [self = Self(), group] {
    std::vector<FakeCallPtr> calls;
    for (const auto& [id, call] : self->calls_) {
      if (call->group.get() == group) calls.push_back(call);
    }
    for (const FakeCallPtr& call : calls) {
      self->Cancel(call, absl::CancelledError("cancelled by the caller"));
    }
  });
}

PeerInfo FakeLane::peer() const {
  MutexLock lock(mutex_);
  return peer_;
}

absl::Status FakeLane::last_error() const {
  MutexLock lock(mutex_);
  return last_error_;
}

ChannelStats FakeLane::stats() const {
  ChannelStats stats;
  stats.connections = connections_.load();
  stats.reconnects = reconnects_.load();
  return stats;
}

// --- connecting ---

void FakeLane::AtLater(absl::Duration delay, std::function<void(FakeLane&)> fn) {
  std::weak_ptr<Driver> weak = weak_from_this();
  engine_->At(engine_->Now() + delay, [weak, fn = std::move(fn)] {
    if (const auto driver = weak.lock()) fn(static_cast<FakeLane&>(*driver));
  });
}

void FakeLane::Connect() {
  state_ = State::kConnecting;
  AtLater(engine_->Delay(), [](FakeLane& lane) {
    if (lane.state_ != State::kConnecting) return;
    auto connection = lane.TryConnect();
    if (connection.ok()) {
      lane.OnConnected(*std::move(connection));
    } else {
      lane.ConnectFailed(connection.status(), std::exchange(lane.refused_, false));
    }
  });
}

absl::StatusOr<std::shared_ptr<FakeConnection>> FakeLane::TryConnect() {
  const auto it = engine_->servers().find(options_.port);
  if (it == engine_->servers().end()) return absl::UnavailableError("Connection refused");
  const std::shared_ptr<FakeServerCore> server = it->second;
  const ServerLimits& limits = server->options.limits;
  if (server->connections.size() >= limits.max_connections) {
    server->refused.fetch_add(1);
    return absl::UnavailableError("the peer closed it");
  }
  server->accepted.fetch_add(1);
  ServerOffer offer;
  offer.max_meta_bytes = limits.max_meta_bytes;
  offer.max_keys = limits.max_keys;
  offer.max_payload_bytes = limits.max_payload_bytes;
  ClientHandshake client(options_.identity, options_.expected_peer_id, false);
  ServerHandshake serving(server->options.identity, offer);
  const auto ack = serving.OnHello(client.MakeHello());
  absl::Status status = ack.status();
  if (ack.ok()) {
    const auto auth = client.OnHelloAck(*ack);
    status = auth.ok() ? serving.OnAuth(*auth) : auth.status();
  }
  if (!status.ok()) {
    server->handshake_failures.fetch_add(1);
    refused_ = true;
    return status;
  }
  PeerInfo server_peer = client.peer();
  server_peer.address = absl::StrCat("fake:", options_.port);
  server_peer.wire = "fake";
  PeerInfo client_peer = serving.peer();
  client_peer.address = "fake:caller";
  client_peer.wire = "fake";
  {
    MutexLock lock(mutex_);
    peer_ = server_peer;
    last_error_ = absl::OkStatus();
  }
  auto connection =
      std::make_shared<FakeConnection>(engine_, server, Self(), std::move(client_peer));
  server->connections.emplace(connection->id(), connection);
  server->connection_count.fetch_add(1);
  server->handler->OnConnected(*connection);
  return connection;
}

void FakeLane::OnConnected(std::shared_ptr<FakeConnection> connection) {
  connection_ = std::move(connection);
  state_ = State::kUp;
  answered_ = false;
  connections_ = 1;
  if (std::exchange(ever_up_, true)) reconnects_.fetch_add(1);
  for (size_t i = 0; i < preambles_.size(); ++i) SendPreamble(i);
  std::vector<FakeCallPtr> calls;
  for (const auto& [id, call] : calls_) calls.push_back(call);
  for (const FakeCallPtr& call : calls) Send(call);
}

void FakeLane::ConnectFailed(const absl::Status& why, bool refused) {
  state_ = State::kBackoff;
  last_failure_ = why;
  ++failures_;
  {
    MutexLock lock(mutex_);
    last_error_ = CannotReach();
  }
  absl::Duration bound = absl::Milliseconds(10);
  for (int i = 1; i < failures_ && bound < kMaxBackoff; ++i) bound *= 2;
  AtLater(std::min(bound, kMaxBackoff) / 2, [](FakeLane& lane) {
    if (lane.state_ != State::kBackoff) return;
    lane.state_ = State::kIdle;
    if (!lane.calls_.empty()) lane.Connect();
  });
  std::vector<FakeCallPtr> ending;
  for (const auto& [id, call] : calls_) {
    if (refused || call->spec.fail_fast) ending.push_back(call);
  }
  for (const FakeCallPtr& call : ending) End(call, MarkNeverSent(CannotReach()));
}

absl::Status FakeLane::CannotReach() const {
  return absl::Status(last_failure_.code(), absl::StrCat("cannot reach fake:", options_.port, ": ",
                                                         last_failure_.message()));
}

void FakeLane::OnCut(const absl::Status& why) {
  connection_ = nullptr;
  connections_ = 0;
  if (state_ == State::kClosed) return;
  std::vector<FakeCallPtr> ending;
  for (const auto& [id, call] : calls_) {
    if (call->sent) ending.push_back(call);
  }
  state_ = State::kIdle;
  if (!answered_) ConnectFailed(why, /*refused=*/false);
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("connection to fake:", options_.port, " broke: ", why.message()));
  for (const FakeCallPtr& call : ending) End(call, status);
  if (state_ == State::kIdle && !calls_.empty()) Connect();
}

void FakeLane::Shutdown() {
  state_ = State::kClosed;
  std::vector<FakeCallPtr> calls;
  for (const auto& [id, call] : calls_) calls.push_back(call);
  const absl::Status status = absl::CancelledError("the channel was closed");
  for (const FakeCallPtr& call : calls) End(call, call->sent ? status : MarkNeverSent(status));
  if (connection_ != nullptr) connection_->Break(absl::UnavailableError("the peer closed it"));
}

// --- calls ---

void FakeLane::Add(const FakeCallPtr& call) {
  call->id = next_id_++;
  calls_.emplace(call->id, call);
  if (state_ == State::kClosed) {
    End(call, MarkNeverSent(absl::CancelledError("the channel is closed")));
    return;
  }
  AtLater(std::max(call->spec.deadline - engine_->Now(), absl::ZeroDuration()),
          [id = call->id](FakeLane& lane) { lane.OnDeadline(id); });
  if (state_ == State::kUp) {
    Send(call);
  } else if (state_ == State::kIdle) {
    Connect();
  }
}

void FakeLane::Send(const FakeCallPtr& call) {
  const uint32_t limit = peer().max_meta_bytes;
  if (call->spec.meta.size() > limit) {
    End(call, absl::InvalidArgumentError(absl::StrCat("a request of ", call->spec.meta.size(),
                                                      " bytes; the peer takes at most ", limit)));
    return;
  }
  call->sent = true;
  call->source = std::move(call->spec.payload);
  connection_->SendRequest(call);
}

void FakeLane::SendPreamble(size_t index) {
  auto call = std::make_shared<FakeCall>();
  call->engine = engine_;
  call->id = (uint64_t{1} << 63) + index;
  call->preamble = preambles_[index];
  call->spec.type = preambles_[index].type;
  call->spec.meta = preambles_[index].meta;
  call->sent = true;
  connection_->SendRequest(call);
}

bool FakeLane::OnFrame(const FakeCallPtr& call, const CallHandler::Answer& answer) {
  const std::shared_ptr<FakeConnection> connection = connection_;
  if (call->handler == nullptr) {
    const absl::Status status =
        call->preamble.on_answer(connection->id(), answer.type, answer.meta);
    if (status.ok()) return true;
    connection->Break(status);
    return false;
  }
  answered_ = true;
  failures_ = 0;
  call->sink = nullptr;
  std::unique_ptr<PayloadSource> source;
  const absl::Status status = call->handler->OnFrame(answer, &call->sink, &source);
  if (!status.ok()) {
    End(call, status);
    connection->Break(status);
    return false;
  }
  if (source != nullptr) {
    call->source = std::move(source);
    connection->PumpUp(call);
  }
  return true;
}

void FakeLane::End(const FakeCallPtr& call, absl::Status status) {
  if (call->ended || call->handler == nullptr) return;
  answered_ = answered_ || status.ok();
  call->ended = true;
  calls_.erase(call->id);
  call->source.reset();
  call->spec.payload.reset();
  call->sink = nullptr;
  if (call->cancelling.has_value()) status = *call->cancelling;
  call->handler->OnDone(std::move(status));
  const std::shared_ptr<GroupState> group = std::move(call->group);
  group->End(this);
}

void FakeLane::Cancel(const FakeCallPtr& call, const absl::Status& why) {
  if (call->ended || call->cancelling.has_value()) return;
  if (!call->sent) {
    End(call, MarkNeverSent(why));
    return;
  }
  call->cancelling = why;
  connection_->SendCancel(call);
  AtLater(kCancelGrace, [call](FakeLane& lane) {
    if (call->ended) return;
    lane.End(call, absl::OkStatus());
    if (call->connection != nullptr) {
      call->connection->Break(absl::UnavailableError("it did not answer a cancel in time"));
    }
  });
}

void FakeLane::OnDeadline(uint64_t id) {
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  const FakeCallPtr call = it->second;
  if (call->sent) {
    Cancel(call, absl::DeadlineExceededError(
                     absl::StrCat("no answer from fake:", options_.port, " within the deadline")));
  } else if (!last_failure_.ok()) {
    End(call, MarkNeverSent(CannotReach()));
  } else {
    End(call, MarkNeverSent(absl::DeadlineExceededError("cannot connect within the deadline")));
  }
}

}  // namespace cistern::transport
