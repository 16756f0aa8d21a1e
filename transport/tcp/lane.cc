#include "transport/tcp/lane.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "proto/types.pb.h"
#include "transport/io_thread.h"

namespace cistern::transport {
namespace {

constexpr uint32_t kMaxHandshakeMetaBytes = 4096;
constexpr size_t kTurnBytes = 1 << 20;
constexpr size_t kWriteBytes = 256 << 10;
// Request ids from here on are those of preambles.
constexpr uint64_t kPreambleIds = uint64_t{1} << 63;
constexpr absl::Duration kMinBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Milliseconds(500);
// What a peer gets to answer a cancel that is sent late: without it a hiccup of ours would cost the
// connection.
constexpr absl::Duration kLeastGrace = absl::Milliseconds(20);
// A connection unused for this long is looked at before a call is trusted to it.
constexpr absl::Duration kStaleAfter = absl::Milliseconds(50);

uint64_t NextConnectionId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

absl::Status MarkNeverSent(absl::Status status) {
  if (!status.ok()) status.SetPayload(kNeverSentUrl, absl::Cord());
  return status;
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

absl::Status StatusOf(std::string_view meta) {
  wire::ErrorReply error;
  if (!error.ParseFromArray(meta.data(), static_cast<int>(meta.size())) || error.code() == 0) {
    return absl::InternalError("malformed error reply");
  }
  return absl::Status(static_cast<absl::StatusCode>(error.code()), error.message());
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

std::string ChannelShared::Address() const {
  const bool bare_v6 = options.host.find(':') != std::string::npos && options.host[0] != '[';
  return bare_v6 ? absl::StrCat("[", options.host, "]:", options.port)
                 : absl::StrCat(options.host, ":", options.port);
}

// --- from any thread ---

Lane::Lane(IoThread* io, std::shared_ptr<ChannelShared> shared, bool small)
    : Driver(io),
      shared_(std::move(shared)),
      options_(shared_->options),
      clock_(*shared_->options.clock),
      small_(small) {}

Lane::~Lane() {
  if (fd_ >= 0) close(fd_);
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
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// --- Driver ---

void Lane::OnSubmitted() {
  if (state_ == State::kUp && !broken_.has_value() && !write_blocked_) Write();
}

void Lane::OnDrive(short revents) {
  if (state_ == State::kClosed) return;
  const MonoTime now = clock_.Mono();
  if (state_ == State::kBackoff && now >= retry_at_) state_ = State::kIdle;
  if (state_ == State::kIdle && !calls_.empty()) BeginConnecting(now);
  if (revents != 0) {
    if (state_ == State::kConnecting) {
      OnConnected();
    } else if (state_ == State::kHandshake || state_ == State::kUp) {
      if ((revents & POLLOUT) != 0) write_blocked_ = false;
      if ((revents & ~POLLOUT) != 0) Read();
    }
  }
  if ((state_ == State::kConnecting || state_ == State::kHandshake) && now >= connect_deadline_) {
    SetBroken(absl::UnavailableError("connecting timed out"));
  }
  if (broken_.has_value()) Break();
  RunTimers(now);
  if ((state_ == State::kHandshake || state_ == State::kUp) && !write_blocked_) Write();
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
      interest.events = POLLOUT;
      interest.timer = std::min(interest.timer, connect_deadline_);
      break;
    case State::kHandshake:
      interest.timer = std::min(interest.timer, connect_deadline_);
      [[fallthrough]];
    case State::kUp:
      interest.events = static_cast<short>(POLLIN | (queue_.empty() ? 0 : POLLOUT));
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
  auto literal = ResolveHost(options_.host, options_.port, /*literal_only=*/true);
  if (literal.ok()) {
    addresses_ = *std::move(literal);
    next_address_ = 0;
    ConnectNext(absl::UnavailableError("no address"));
    return;
  }
  // The resolver may block for seconds: neither a caller nor the I/O thread, with other calls'
  // timers, may wait for it.
  state_ = State::kResolving;
  std::weak_ptr<Driver> weak = weak_from_this();
  io()->RunBlocking([weak, host = options_.host, port = options_.port]() -> BlockingThread::Result {
    return [weak, addresses = ResolveHost(host, port, /*literal_only=*/false)]() mutable {
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
  if (absl::Status status = ConnectResult(fd_); !status.ok()) {
    CloseSocket();
    ConnectNext(status);
    return;
  }
  state_ = State::kHandshake;
  answered_ = false;
  write_blocked_ = false;
  connection_id_ = NextConnectionId();
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
      OnUp();
      return absl::OkStatus();
    default:
      break;
  }
  return absl::UnavailableError("no cistern server answers there (malformed handshake)");
}

void Lane::OnUp() {
  state_ = State::kUp;
  PeerInfo peer = handshake_->peer();
  peer.address = shared_->Address();
  peer.wire = "tcp";
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
  // A child that was forked meanwhile holds the socket too: the peer must learn of the end now.
  shutdown(fd_, SHUT_RDWR);
  close(fd_);
  fd_ = -1;
}

// The connection could not be made.
void Lane::ConnectFailed(const absl::Status& why) {
  CloseSocket();
  ++failures_;
  state_ = State::kBackoff;
  retry_at_ = clock_.Mono() + Backoff(failures_);
  connect_deadline_ = MonoTime::Infinite();
  last_failure_ = why;
  const bool refused = refused_;
  refused_ = false;
  shared_->SetError(CannotReach());
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
  char byte;
  const ssize_t n = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void Lane::Read() {
  size_t moved = 0;
  while (moved < kTurnBytes && !broken_.has_value()) {
    iov_.clear();
    if (absl::Status status = reader_->NextRead(&iov_); !status.ok()) return SetBroken(status);
    size_t room = 0;
    for (const iovec& piece : iov_) room += piece.iov_len;
    const ssize_t n = ReadPieces(fd_, iov_);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return SetBroken(ErrnoStatus(errno, "read"));
    if (n == 0) return SetBroken(absl::UnavailableError("the peer closed it"));
    moved += static_cast<size_t>(n);
    shared_->bytes_in.fetch_add(static_cast<uint64_t>(n), std::memory_order_relaxed);
    if (absl::Status status = reader_->Advance(static_cast<size_t>(n)); !status.ok()) {
      return SetBroken(status);
    }
    if (static_cast<size_t>(n) < room) return;
  }
}

void Lane::Write() {
  size_t moved = 0;
  while (moved < kTurnBytes && !queue_.empty() && !broken_.has_value()) {
    const absl::Span<iovec> pieces = queue_.Prepare(kWriteBytes);
    size_t n = 0;
    if (!pieces.empty()) {
      size_t wanted = 0;
      for (const iovec& piece : pieces) wanted += piece.iov_len;
      const ssize_t sent = WritePieces(fd_, pieces);
      if (sent < 0 && errno == EAGAIN) {
        write_blocked_ = true;
        return;
      }
      if (sent < 0) return SetBroken(ErrnoStatus(errno, "write"));
      n = static_cast<size_t>(sent);
      moved += n;
      shared_->bytes_out.fetch_add(n, std::memory_order_relaxed);
      write_blocked_ = n < wanted;
    }
    queue_.Consume(n, &finished_);
    FinishItems(&finished_);
    if (write_blocked_) return;
  }
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

// --- calls ---

void Lane::AddCall(std::unique_ptr<LaneCall> owned) {
  LaneCall* const call = owned.get();
  call->id = next_call_id_++;
  if (call->group->background()) ++background_calls_;
  const bool was_idle = calls_.empty();
  calls_.emplace(call->id, std::move(owned));
  if (state_ == State::kClosed) {
    Finish(call, MarkNeverSent(absl::CancelledError("the channel is closed")));
    return;
  }
  call_timer_ = std::min(call_timer_, call->spec.deadline);
  if (state_ != State::kUp || broken_.has_value()) return;
  if (was_idle) {
    const MonoTime now = clock_.Mono();
    if (WentStale(now)) {
      answered_ = true;  // a server that went away: no reason to hesitate
      SetBroken(absl::UnavailableError("the peer closed it while it was idle"));
      return;
    }
    last_used_ = now;
  }
  PushCall(call);
}

void Lane::PushCall(LaneCall* call) {
  if (call->spec.meta.size() > peer_max_meta_bytes_) {
    Finish(call, absl::InvalidArgumentError(absl::StrCat("a request of ", call->spec.meta.size(),
                                                         " bytes; the peer takes at most ",
                                                         peer_max_meta_bytes_)));
    return;
  }
  auto item = std::make_unique<OutItem>();
  item->type = call->spec.type;
  item->meta = std::move(call->spec.meta);
  item->source = std::move(call->spec.payload);
  item->payload_in_frame = true;
  call->pushed = true;
  queue_.Push(call, std::move(item));
}

void Lane::PushWaitingCalls() {
  std::vector<LaneCall*> waiting;
  for (const auto& [id, call] : calls_) {
    if (!call->pushed) waiting.push_back(call.get());
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const LaneCall* a, const LaneCall* b) { return a->id < b->id; });
  for (LaneCall* call : waiting) PushCall(call);
}

absl::Status Lane::OnFrame(const FrameHeader& header, std::string_view meta) {
  frame_call_ = nullptr;
  if (state_ == State::kHandshake) return OnHandshakeFrame(header, meta);
  if (header.request_id >= kPreambleIds) return OnPreambleAnswer(header, meta);
  const auto it = calls_.find(header.request_id);
  // A CancelDone that came after the final frame, most likely.
  if (it == calls_.end()) return absl::OkStatus();
  if (!answered_) {
    answered_ = true;
    failures_ = 0;
  }
  return OnAnswer(it->second.get(), header, meta);
}

absl::Status Lane::OnAnswer(LaneCall* call, const FrameHeader& header, std::string_view meta) {
  const bool final = (header.flags & kFlagFinal) != 0 || header.type == FrameType::kError ||
                     header.type == FrameType::kCancelDone;
  if (call->end.has_value()) {
    if (final) {
      call->awaits_cancel_done = false;
      FinishIfQuiet(call);
    }
    return absl::OkStatus();
  }
  if (header.type == FrameType::kError) {
    EndCall(call, StatusOf(meta));
    return absl::OkStatus();
  }
  if (header.type == FrameType::kCancelDone) {
    return absl::InvalidArgumentError("a cancel answered that nobody sent");
  }
  CallHandler::Answer answer{header.type, final, meta, header.payload_bytes};
  std::unique_ptr<PayloadSource> source;
  call->sink = nullptr;
  call->final_seen = final;
  frame_call_ = call;
  if (absl::Status status = call->handler->OnFrame(answer, &call->sink, &source); !status.ok()) {
    call->end = status;
    return status;
  }
  if (source != nullptr) {
    auto item = std::make_unique<OutItem>();
    item->data_only = true;
    item->source = std::move(source);
    queue_.Push(call, std::move(item));
  }
  return absl::OkStatus();
}

FrameReceiver::Take Lane::PayloadBuffers(size_t max_bytes, size_t max_pieces,
                                         std::vector<iovec>* out, absl::Status* error) {
  LaneCall* const call = frame_call_;
  if (call == nullptr || call->end.has_value() || call->sink == nullptr) return Take::kDiscard;
  const size_t before = out->size();
  call->sink->NextBuffers(max_bytes, max_pieces, out);
  if (out->size() == before) {
    *error = absl::InvalidArgumentError("more payload than was asked for");
    call->end = *error;
    return Take::kPause;
  }
  return Take::kBuffers;
}

absl::Status Lane::PayloadLanded(size_t bytes) {
  // The call may have been cancelled between the read and this only if it still exists.
  LaneCall* const call = frame_call_;
  absl::Status status = call->sink->Landed(bytes);
  if (!status.ok()) call->end = status;
  return status;
}

absl::Status Lane::OnFrameEnd() {
  LaneCall* const call = frame_call_;
  frame_call_ = nullptr;
  if (call != nullptr && !call->end.has_value() && call->final_seen) {
    EndCall(call, absl::OkStatus());
  }
  return absl::OkStatus();
}

// The deadline has come, or the caller wants no more.
void Lane::CancelCall(LaneCall* call, const absl::Status& why) {
  if (call->end.has_value()) return;
  if (!call->pushed) {
    Finish(call, MarkNeverSent(why));
    return;
  }
  std::vector<std::unique_ptr<OutItem>> dropped;
  const bool begun = call->begun;
  queue_.Abort(call, &dropped);
  dropped.clear();
  if (!begun) {
    Finish(call, MarkNeverSent(why));
    return;
  }
  call->end = why;
  call->awaits_cancel_done = true;
  // From the deadline on, however late we are called (on a busy host): the caller was promised so.
  const MonoTime now = clock_.Mono();
  call->grace = std::max(std::min(now, call->spec.deadline) + kCancelGrace, now + kLeastGrace);
  call_timer_ = std::min(call_timer_, call->grace);
  wire::Cancel cancel;
  cancel.set_request_id(call->id);
  auto item = std::make_unique<OutItem>();
  item->type = FrameType::kCancel;
  item->meta = cancel.SerializeAsString();
  queue_.PushFirst(call, std::move(item));
}

// The answer is complete. What of the request is still under way has to leave first: it is read
// from the caller's memory.
void Lane::EndCall(LaneCall* call, const absl::Status& status) {
  std::vector<std::unique_ptr<OutItem>> dropped;
  queue_.Abort(call, &dropped);
  dropped.clear();
  call->end = status;
  if (call->in_flight > 0) {
    call->grace = clock_.Mono() + kCancelGrace;
    call_timer_ = std::min(call_timer_, call->grace);
  }
  FinishIfQuiet(call);
}

void Lane::FinishIfQuiet(LaneCall* call) {
  if (!call->end.has_value() || call->awaits_cancel_done) return;
  if (call->in_flight > 0 || !call->items.empty()) {
    // Its Cancel, say, when the final frame came first: not needed any more, unless under way.
    std::vector<std::unique_ptr<OutItem>> dropped;
    if (queue_.Abort(call, &dropped)) return;
  }
  const absl::Status status = *call->end;
  Finish(call, status);
}

void Lane::Finish(LaneCall* call, absl::Status status) {
  const auto it = calls_.find(call->id);
  const std::unique_ptr<LaneCall> owned = std::move(it->second);
  calls_.erase(it);
  if (frame_call_ == call) frame_call_ = nullptr;
  if (owned->group->background()) --background_calls_;
  owned->spec.payload.reset();
  load_.fetch_sub(owned->expected_bytes, std::memory_order_relaxed);
  const std::shared_ptr<GroupState> group = owned->group;
  owned->handler->OnDone(std::move(status));
  group->End(this);
}

void Lane::FinishItems(std::vector<std::unique_ptr<OutItem>>* items) {
  if (items->empty()) return;
  // By id: a call ends with the first of its items that finds it quiet.
  std::vector<uint64_t> ids;
  for (const auto& item : *items) ids.push_back(item->stream->id);
  items->clear();
  for (const uint64_t id : ids) {
    const auto it = calls_.find(id);
    if (it != calls_.end()) FinishIfQuiet(it->second.get());
  }
}

void Lane::RunTimers(MonoTime now) {
  if (now < call_timer_) return;
  call_timer_ = MonoTime::Infinite();
  std::vector<LaneCall*> due;
  for (const auto& [id, call] : calls_) {
    const MonoTime when = call->end.has_value() ? call->grace : call->spec.deadline;
    if (when <= now) {
      due.push_back(call.get());
    } else {
      call_timer_ = std::min(call_timer_, when);
    }
  }
  for (LaneCall* call : due) {
    if (call->end.has_value()) {
      SetBroken(absl::UnavailableError("it did not answer a cancel in time"));
    } else if (call->pushed) {
      CancelCall(call, absl::DeadlineExceededError(absl::StrCat(
                           "no answer from ", shared_->Address(), " within the deadline")));
    } else if (!last_failure_.ok()) {
      Finish(call, MarkNeverSent(CannotReach()));
    } else {
      Finish(call, MarkNeverSent(absl::DeadlineExceededError(
                       absl::StrCat("cannot reach ", shared_->Address(), " within the deadline"))));
    }
  }
}

}  // namespace cistern::transport
