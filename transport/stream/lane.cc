#include "transport/stream/lane.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/io_thread.h"
#include "transport/stream/call_status.h"

namespace cistern::transport {
namespace {

constexpr uint32_t kMaxHandshakeMetaBytes = 4096;
constexpr size_t kTurnBytes = 1 << 20;
constexpr size_t kWriteBytes = 256 << 10;
constexpr absl::Duration kMinBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Milliseconds(500);
// A connection unused for this long is looked at before a call is trusted to it.
constexpr absl::Duration kStaleAfter = absl::Milliseconds(50);

uint64_t NextConnectionId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Full jitter: anything up to the bound, which doubles. Only has to differ between processes.
absl::Duration Backoff(int failures) {
  thread_local uint64_t state = 0;
  if (state == 0) {
    const std::string seed = RandomNonce();
    std::memcpy(&state, seed.data(), sizeof(state));
  }
  state = state * 6364136223846793005u + 1442695040888963407u;
  const double share = static_cast<double>(state >> 33) / static_cast<double>(1u << 31);
  absl::Duration bound = kMinBackoff;
  for (int i = 1; i < failures && bound < kMaxBackoff; ++i) bound *= 2;
  return std::min(bound, kMaxBackoff) * share;
}

}  // namespace

// --- ChannelShared ---

void ChannelShared::SetPeer(const PeerInfo& peer) {
  MutexLock lock(mutex_);
  peer_ = peer;
  last_error_ = absl::OkStatus();
}

PeerInfo ChannelShared::peer() const {
  MutexLock lock(mutex_);
  return peer_;
}

void ChannelShared::SetError(const absl::Status& status) {
  MutexLock lock(mutex_);
  last_error_ = status;
}

absl::Status ChannelShared::last_error() const {
  MutexLock lock(mutex_);
  return last_error_;
}

// --- from any thread ---

Lane::Lane(IoThread* io, std::shared_ptr<ChannelShared> shared, bool small)
    : Driver(io),
      shared_(std::move(shared)),
      options_(shared_->options),
      clock_(*shared_->options.clock),
      small_(small) {}

Lane::~Lane() {
  if (fd_ >= 0 && options_.wire->has_sockets()) close(fd_);
}

void Lane::StartCall(std::unique_ptr<LaneCall> call) {
  call->expected_bytes = call->spec.expected_bytes + 1;
  if (call->spec.payload != nullptr) call->expected_bytes += call->spec.payload->remaining();
  load_.fetch_add(call->expected_bytes, std::memory_order_relaxed);
  Submit([this, call = std::move(call)]() mutable { AddCall(std::move(call)); });
}

void Lane::AddPreamble(Channel::Preamble preamble) {
  Submit([this, preamble = std::move(preamble)]() mutable {
    preambles_.push_back(std::move(preamble));
    if (state_ == State::kUp && !broken_.has_value()) SendPreamble(preambles_.size() - 1);
  });
}

void Lane::CancelGroup(const GroupState* group) {
  Submit([this, group] {
    std::vector<LaneCall*> calls;
    for (const auto& [id, call] : calls_) {
      if (call->group.get() == group) calls.push_back(call.get());
    }
    for (LaneCall* call : calls) CancelCall(call, absl::CancelledError("cancelled by the caller"));
  });
}

void Lane::Shutdown(const absl::Status& status) {
  SubmitAndWait([this, &status] {
    state_ = State::kClosed;
    CloseSocket();
    std::vector<std::unique_ptr<OutItem>> items;
    queue_.Clear(&items);
    items.clear();
    std::vector<LaneCall*> calls;
    for (const auto& [id, call] : calls_) calls.push_back(call.get());
    for (LaneCall* call : calls) {
      const bool never_sent = !call->begun;
      const absl::Status end = call->end.value_or(status);
      Finish(call, never_sent ? MarkNeverSent(end) : end);
    }
  });
}

void Lane::AbandonAfterFork() {
  if (fd_ >= 0 && options_.wire->has_sockets()) close(fd_);
  fd_ = -1;
}

// --- Driver ---

void Lane::OnSubmitted() {
  if (state_ != State::kUp || broken_.has_value()) return;
  if (!write_blocked_) Write();
  if (!broken_.has_value()) {
    if (absl::Status status = link_->Flush(); !status.ok()) SetBroken(std::move(status));
  }
}

void Lane::OnDrive(short revents) {
  if (state_ == State::kClosed) return;
  const MonoTime now = clock_.Mono();
  if (state_ == State::kBackoff && now >= retry_at_) state_ = State::kIdle;
  if (state_ == State::kIdle && !calls_.empty()) BeginConnecting(now);
  if (link_ != nullptr && !broken_.has_value()) {
    if (absl::Status status = link_->Progress(); !status.ok()) SetBroken(std::move(status));
    FinishQuiet();
    // What it has taken from a device no event tells of again.
    if (!options_.wire->has_sockets()) revents |= POLLIN;
  }
  if (revents != 0) {
    if (state_ == State::kConnecting) {
      OnConnected();
    } else if (state_ == State::kHandshake || state_ == State::kUp) {
      if ((revents & POLLOUT) != 0) write_blocked_ = false;
      if ((revents & ~POLLOUT) != 0) Read();
    }
  } else if (HasPieces()) {
    Read();
  }
  if ((state_ == State::kConnecting || state_ == State::kHandshake) && now >= connect_deadline_) {
    SetBroken(absl::UnavailableError("connecting timed out"));
  }
  if (broken_.has_value()) Break();
  RunTimers(now);
  if ((state_ == State::kHandshake || state_ == State::kUp) && !write_blocked_) Write();
  if (link_ != nullptr && !broken_.has_value()) {
    if (absl::Status status = link_->Flush(); !status.ok()) SetBroken(std::move(status));
  }
  if (broken_.has_value()) Break();
}

Driver::Interest Lane::CurrentInterest() {
  Interest interest;
  interest.fd = fd_;
  interest.timer = call_timer_;
  switch (state_) {
    case State::kIdle:
      interest.drive_now = !calls_.empty();
      break;
    case State::kBackoff:
      if (!calls_.empty()) interest.timer = std::min(interest.timer, retry_at_);
      break;
    case State::kConnecting:
      interest.events = dialer_ != nullptr ? POLLIN : POLLOUT;
      interest.timer = std::min(interest.timer, connect_deadline_);
      break;
    case State::kHandshake:
      interest.timer = std::min(interest.timer, connect_deadline_);
      [[fallthrough]];
    case State::kUp:
      interest.events = static_cast<short>(POLLIN | (WaitsForSocket() ? POLLOUT : 0));
      interest.drive_now = HasPieces();
      break;
    case State::kResolving:
    case State::kClosed:
      break;
  }
  if (broken_.has_value()) interest.drive_now = true;
  return interest;
}

// --- the connection ---

void Lane::BeginConnecting(MonoTime now) {
  connect_deadline_ = now + options_.connect_timeout;
  auto known = options_.wire->Resolve(/*may_block=*/false);
  if (known.ok()) {
    addresses_ = *std::move(known);
    next_address_ = 0;
    ConnectNext(absl::UnavailableError("no address"));
    return;
  }
  if (known.status().code() != absl::StatusCode::kNotFound) {
    ConnectFailed(known.status());
    return;
  }
  // The resolver may block for seconds: neither a caller nor the I/O thread, with other calls'
  // timers, may wait for it.
  state_ = State::kResolving;
  std::weak_ptr<Driver> weak = weak_from_this();
  io()->RunBlocking([weak, wire = options_.wire]() -> BlockingThread::Result {
    return [weak, addresses = wire->Resolve(/*may_block=*/true)]() mutable {
      const std::shared_ptr<Driver> driver = weak.lock();
      if (driver == nullptr) return;
      Lane* const lane = static_cast<Lane*>(driver.get());
      lane->Submit([lane, addresses = std::move(addresses)]() mutable {
        lane->OnResolved(std::move(addresses));
      });
    };
  });
}

void Lane::OnResolved(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  if (state_ != State::kResolving) return;
  if (!addresses.ok()) {
    ConnectFailed(addresses.status());
    return;
  }
  addresses_ = *std::move(addresses);
  next_address_ = 0;
  connect_deadline_ = clock_.Mono() + options_.connect_timeout;
  ConnectNext(absl::UnavailableError("no address"));
}

void Lane::ConnectNext(const absl::Status& last) {
  absl::Status failure = last;
  while (next_address_ < addresses_.size()) {
    if (next_address_ > 0) NoteFailure(failure);
    if (!options_.wire->has_sockets()) {
      auto dialer = options_.wire->Dial(addresses_[next_address_++]);
      if (dialer.ok()) {
        dialer_ = *std::move(dialer);
        fd_ = dialer_->fd();
        state_ = State::kConnecting;
        return;
      }
      failure = dialer.status();
      continue;
    }
    auto fd = BeginConnect(addresses_[next_address_++]);
    if (fd.ok()) {
      fd_ = *fd;
      state_ = State::kConnecting;
      return;
    }
    failure = fd.status();
  }
  ConnectFailed(failure);
}

void Lane::OnConnected() {
  absl::Status failure;
  if (dialer_ != nullptr) {
    const absl::StatusOr<bool> connected = dialer_->Advance();
    failure = connected.status();
    if (connected.ok() && !*connected) return;
  } else {
    failure = ConnectResult(fd_);
  }
  if (!failure.ok()) {
    CloseSocket();
    ConnectNext(failure);
    return;
  }
  state_ = State::kHandshake;
  answered_ = false;
  write_blocked_ = false;
  connection_id_ = NextConnectionId();
  std::weak_ptr<Driver> weak = weak_from_this();
  if (dialer_ != nullptr) {
    link_ = dialer_->TakeLink();
    dialer_.reset();
  } else {
    link_ = options_.wire->MakeLink(fd_, [weak] {
      const std::shared_ptr<Driver> driver = weak.lock();
      // OnSubmitted writes.
      if (driver != nullptr) static_cast<Lane*>(driver.get())->Submit([] {});
    });
  }
  handshake_ =
      std::make_unique<ClientHandshake>(options_.identity, options_.expected_peer_id, small_);
  FrameReader::Options reader;
  reader.max_meta_bytes = kMaxHandshakeMetaBytes;
  if (small_) reader.head_bytes = kSmallLaneHeadBytes;
  reader_.reset(new FrameReader(reader, this));
  SendControl(FrameType::kHello, 0, handshake_->MakeHello().SerializeAsString());
}

absl::Status Lane::OnHandshakeFrame(const FrameHeader& header, std::string_view meta) {
  switch (header.type) {
    case FrameType::kError: {
      refused_ = true;
      return StatusOf(meta);
    }
    case FrameType::kHelloAck: {
      wire::HelloAck ack;
      if (!ack.ParseFromArray(meta.data(), static_cast<int>(meta.size()))) break;
      auto auth = handshake_->OnHelloAck(ack);
      if (!auth.ok()) {
        refused_ = true;
        return auth.status();
      }
      SendControl(FrameType::kAuth, 0, auth->SerializeAsString());
      return absl::OkStatus();
    }
    case FrameType::kAuthOk:
      if (handshake_->peer().max_meta_bytes == 0) break;  // before HelloAck
      return OnAuthOk(meta);
    default:
      break;
  }
  return absl::UnavailableError("no cistern server answers there (malformed handshake)");
}

absl::Status Lane::OnAuthOk(std::string_view meta) {
  wire::AuthOk ok;
  if (!ok.ParseFromArray(meta.data(), static_cast<int>(meta.size()))) {
    return absl::UnavailableError("no cistern server answers there (malformed handshake)");
  }
  if (absl::Status status = link_->OnClientReady(ok); !status.ok()) {
    refused_ = true;
    return status;
  }
  reader_->SetCarrier(link_->carrier());
  reader_->SetPlacingCarrier(link_->placing_carrier());
  OnUp();
  return absl::OkStatus();
}

void Lane::OnUp() {
  state_ = State::kUp;
  PeerInfo peer = handshake_->peer();
  peer.address = shared_->Address();
  peer.wire = options_.wire->name();
  peer_max_meta_bytes_ = peer.max_meta_bytes;
  handshake_.reset();
  shared_->SetPeer(peer);
  shared_->connections.fetch_add(1, std::memory_order_relaxed);
  if (ever_up_) shared_->reconnects.fetch_add(1, std::memory_order_relaxed);
  ever_up_ = true;
  reader_->SetLimits(kMaxMetaBytesTcp, kMaxDataFrameBytes);
  connect_deadline_ = MonoTime::Infinite();
  last_used_ = clock_.Mono();
  for (size_t i = 0; i < preambles_.size(); ++i) SendPreamble(i);
  PushWaitingCalls();
}

void Lane::SetBroken(absl::Status why) {
  if (!broken_.has_value()) broken_ = std::move(why);
}

void Lane::CloseSocket() {
  if (fd_ < 0) return;
  BeforeClose();
  // Without a socket the descriptor goes with them.
  link_.reset();
  dialer_.reset();
  if (!options_.wire->has_sockets()) {
    fd_ = -1;
    return;
  }
  // A child that was forked meanwhile holds the socket too: the peer must learn of the end now.
  shutdown(fd_, SHUT_RDWR);
  close(fd_);
  fd_ = -1;
}

void Lane::NoteFailure(const absl::Status& why) {
  last_failure_ = why;
  shared_->SetError(CannotReach());
}

// The connection could not be made.
void Lane::ConnectFailed(const absl::Status& why) {
  CloseSocket();
  ++failures_;
  state_ = State::kBackoff;
  retry_at_ = clock_.Mono() + Backoff(failures_);
  connect_deadline_ = MonoTime::Infinite();
  NoteFailure(why);
  const bool refused = refused_;
  refused_ = false;
  std::vector<LaneCall*> ending;
  for (const auto& [id, call] : calls_) {
    if (refused || call->spec.fail_fast) ending.push_back(call.get());
  }
  for (LaneCall* call : ending) Finish(call, MarkNeverSent(CannotReach()));
}

absl::Status Lane::CannotReach() const {
  return absl::Status(last_failure_.code(), absl::StrCat("cannot reach ", shared_->Address(), ": ",
                                                         last_failure_.message()));
}

// Poller only. The connection is of no use any more.
void Lane::Break() {
  const absl::Status why = *std::move(broken_);
  broken_.reset();
  const bool was_up = state_ == State::kUp;
  std::vector<std::unique_ptr<OutItem>> items;
  CloseSocket();
  queue_.Clear(&items);
  frame_call_ = nullptr;
  write_blocked_ = false;
  for (auto& item : items) {
    if (item->stream->id == 0 || item->stream->id >= kPreambleIds) continue;
    auto* call = static_cast<LaneCall*>(item->stream);
    if (call->begun) continue;
    call->spec.meta = std::move(item->meta);  // not touched yet: for the next connection
    call->spec.payload = std::move(item->source);
  }
  items.clear();
  control_.clear();
  reader_.reset();
  handshake_.reset();
  if (!was_up) {
    ConnectFailed(why);
    return;
  }
  shared_->connections.fetch_sub(1, std::memory_order_relaxed);
  std::vector<LaneCall*> ending;
  for (const auto& [id, call] : calls_) {
    if (call->begun || call->end.has_value()) {
      ending.push_back(call.get());
    } else {
      call->pushed = false;
    }
  }
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("connection to ", shared_->Address(), " broke: ", why.message()));
  if (answered_) {
    state_ = State::kIdle;  // it was good: connect anew at once
  } else {
    ++failures_;
    state_ = State::kBackoff;
    retry_at_ = clock_.Mono() + Backoff(failures_);
    last_failure_ = why;
    shared_->SetError(CannotReach());
  }
  for (LaneCall* call : ending) Finish(call, call->end.value_or(status));
}

// The server may have closed the connection while nobody looked.
bool Lane::WentStale(MonoTime now) {
  if (now - last_used_ < kStaleAfter) return false;
  if (!options_.wire->has_sockets()) return link_->WentStale();
  char byte;
  const ssize_t n = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool Lane::HasPieces() const {
  if (reader_ == nullptr || link_ == nullptr) return false;
  return reader_->has_pieces() || (link_->has_unread() && !reader_->waits());
}

// Else what waits to be written waits for the peer, who will say something.
bool Lane::WaitsForSocket() const {
  if (write_blocked_) return link_->blocked() == LinkBlock::kSocket;
  return !queue_.empty() || (link_ != nullptr && link_->wants_write());
}

void Lane::Read() {
  size_t moved = 0;
  while (moved < kTurnBytes && !broken_.has_value()) {
    const uint64_t pieces_before = reader_->piece_bytes_taken();
    bool drained = false;
    if (reader_->has_pieces()) {
      if (absl::Status status = reader_->Continue(); !status.ok()) return SetBroken(status);
    } else {
      iov_.clear();
      if (absl::Status status = reader_->NextRead(&iov_); !status.ok()) return SetBroken(status);
      const auto got = link_->Read(iov_);
      if (!got.ok()) return SetBroken(got.status());
      drained = got->drained;
      if (got->bytes == 0 && !reader_->has_pieces()) break;
      if (got->bytes == 0) continue;
      moved += got->bytes;
      shared_->bytes_in.fetch_add(got->bytes, std::memory_order_relaxed);
      if (absl::Status status = reader_->Advance(got->bytes); !status.ok()) {
        return SetBroken(status);
      }
    }
    const uint64_t pieces = reader_->piece_bytes_taken() - pieces_before;
    moved += pieces;
    shared_->bytes_in.fetch_add(pieces, std::memory_order_relaxed);
    if (drained && !reader_->has_pieces()) break;
  }
  // The peer may have made room for what waits for it.
  if (write_blocked_ && link_->blocked() == LinkBlock::kNone) write_blocked_ = false;
}

void Lane::Write() {
  size_t moved = 0;
  while (moved < kTurnBytes && !broken_.has_value() && (!queue_.empty() || link_->wants_write())) {
    const absl::Span<iovec> pieces = queue_.Prepare(kWriteBytes);
    size_t taken = 0;
    if (!pieces.empty() || link_->wants_write()) {
      if (absl::Status status = link_->Write(pieces, queue_.kinds(), &taken); !status.ok()) {
        return SetBroken(status);
      }
      moved += taken;
      shared_->bytes_out.fetch_add(taken, std::memory_order_relaxed);
      write_blocked_ = link_->blocked() != LinkBlock::kNone;
    }
    queue_.Consume(taken, link_->unquiet_bytes(), &finished_);
    FinishItems(&finished_);
    if (write_blocked_) return;
  }
}

void Lane::FinishQuiet() {
  queue_.Consume(0, link_->unquiet_bytes(), &finished_);
  FinishItems(&finished_);
}

void Lane::SendControl(FrameType type, uint64_t id, std::string meta) {
  auto item = std::make_unique<OutItem>();
  item->type = type;
  item->meta = std::move(meta);
  control_.push_back(std::make_unique<OutStream>(id));
  queue_.Push(control_.back().get(), std::move(item));
}

void Lane::SendPreamble(size_t index) {
  SendControl(preambles_[index].type, kPreambleIds + index, preambles_[index].meta);
}

absl::Status Lane::OnPreambleAnswer(const FrameHeader& header, std::string_view meta) {
  const uint64_t index = header.request_id - kPreambleIds;
  if (index >= preambles_.size()) return absl::InvalidArgumentError("an answer nobody asked for");
  if (header.type == FrameType::kError) return StatusOf(meta);
  answered_ = true;
  return preambles_[index].on_answer(connection_id_, header.type, meta);
}

}  // namespace cistern::transport
