#include "transport/stream/server_connection.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "proto/data.pb.h"
#include "proto/types.pb.h"
#include "transport/stream/server_call.h"

namespace cistern::transport {
namespace {

constexpr uint32_t kMaxHandshakeMetaBytes = 4096;
// Bytes that one connection moves each way before the others of its loop have their turn.
constexpr size_t kTurnBytes = 1 << 20;
constexpr size_t kWriteBytes = 256 << 10;

uint64_t NextConnectionId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::unique_ptr<OutItem> MakeItem(FrameType type, uint16_t flags,
                                  const google::protobuf::MessageLite& meta) {
  auto item = std::make_unique<OutItem>();
  item->type = type;
  item->flags = flags;
  meta.SerializeToString(&item->meta);
  return item;
}

ServerOffer OfferOf(const ServerLimits& limits) {
  ServerOffer offer;
  offer.max_meta_bytes = limits.max_meta_bytes;
  offer.max_keys = limits.max_keys;
  offer.max_payload_bytes = limits.max_payload_bytes;
  return offer;
}

void Count(std::atomic<uint64_t>& counter, uint64_t n = 1) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

ServerConnectionImpl::ServerConnectionImpl(ServerLoop* loop, int fd,
                                           std::unique_ptr<StreamLink> link,
                                           const std::string& address)
    : loop_(*loop),
      inbox_(loop->inbox()),
      handler_(*loop->shared().handler),
      id_(NextConnectionId()),
      fd_(fd),
      handshake_(std::make_unique<ServerHandshake>(loop->shared().options.identity,
                                                   OfferOf(loop->shared().options.limits))),
      link_(std::move(link)),
      reader_({.max_meta_bytes = kMaxHandshakeMetaBytes, .max_payload_bytes = 0}, this),
      accepted_at_(loop->now()),
      last_read_(loop->now()),
      last_write_(loop->now()) {
  peer_.address = address;
  peer_.wire = loop_.shared().options.wire->name();
}

ServerConnectionImpl::~ServerConnectionImpl() {
  if (fd_ >= 0) close(fd_);
}

void ServerConnectionImpl::OnEvents(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) peer_closed_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
  Turn();
}

void ServerConnectionImpl::OnExtraEvent() {
  link_->OnExtraEvent();
  Turn();
}

void ServerConnectionImpl::OnLinkEvent() { OnEvents(EPOLLIN | EPOLLOUT); }

void ServerConnectionImpl::LinkCut() {
  absl::AnyInvocable<void()> gone = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnEvents(EPOLLIN | EPOLLRDHUP);
  };
  inbox_->Post(gone);
}

void ServerConnectionImpl::Progress() {
  if (broken_.has_value()) return;
  const absl::Status status = link_->Progress();
  if (!status.ok()) {
    if (status.code() == absl::StatusCode::kInvalidArgument) return DoProtocolError(status);
    return Fail(Annotate(status, peer_.address));
  }
  const uint64_t unquiet = link_->unquiet_bytes();
  if (unquiet < unquiet_bytes_) last_write_ = loop_.now();
  unquiet_bytes_ = unquiet;
  queue_.Consume(0, unquiet, &finished_);
  FinishItems(&finished_, absl::OkStatus());
}

void ServerConnectionImpl::Flush() {
  if (broken_.has_value()) return;
  if (absl::Status status = link_->Flush(); !status.ok()) Fail(Annotate(status, peer_.address));
}

void ServerConnectionImpl::Turn() {
  if (state_ == State::kClosed) return;
  Progress();
  if (!draining_) Read();
  if (peer_closed_ && reader_.paused()) {
    // What it had still sent is not read any more: nobody is there for the answers.
    Fail(absl::UnavailableError("the peer closed the connection"));
  }
  // The peer may have made room for what waits for it.
  if (!writable_ && link_->blocked() == LinkBlock::kNone) writable_ = true;
  Write();
  Flush();
  if (draining_ && !HasOutput() && link_->delivered() && !broken_.has_value()) {
    broken_ = absl::UnavailableError("refused");
  }
  if (broken_.has_value()) {
    Close(*broken_);
    return;
  }
  UpdateTimer();
  const bool reads =
      ((readable_ && !reader_.waits()) || reader_.has_pieces()) && !draining_ && !reader_.paused();
  if (reads || (writable_ && HasOutput())) WantTurn();
}

void ServerConnectionImpl::WantTurn() {
  if (state_ != State::kClosed) loop_.RunSoon(this);
}

void ServerConnectionImpl::Fail(const absl::Status& why) {
  if (!broken_.has_value()) broken_ = why;
  WantTurn();
}

void ServerConnectionImpl::Cut(const absl::Status& why) {
  absl::AnyInvocable<void()> cut = [weak = weak_from_this(), why] {
    const auto self = weak.lock();
    if (self == nullptr || self->state_ == State::kClosed) return;
    CISTERN_LOG_EVERY(Warning, absl::Seconds(10), "connection from ", self->peer_.address,
                      " cut: ", why.ToString());
    self->Fail(why);
  };
  inbox_->Post(cut);  // a loop that has stopped has closed it
}

void ServerConnectionImpl::DoProtocolError(const absl::Status& why) {
  if (state_ == State::kClosed || broken_.has_value()) return;
  Count(loop_.shared().protocol_errors);
  CISTERN_LOG_EVERY(Warning, absl::Seconds(10), "connection from ", peer_.address,
                    " cut: ", why.ToString());
  Fail(why);
}

void ServerConnectionImpl::Read() {
  size_t moved = 0;
  if (reader_.paused()) {
    const uint64_t pieces_before = reader_.piece_bytes_taken();
    const absl::Status status = reader_.Resume();
    CountPieces(pieces_before, &moved);
    if (!status.ok()) return DoProtocolError(status);
  }
  while (moved < kTurnBytes && !reader_.paused() && !broken_.has_value() && !draining_ &&
         ReadOnce(&moved)) {
  }
}

void ServerConnectionImpl::CountPieces(uint64_t before, size_t* moved) {
  const uint64_t pieces = reader_.piece_bytes_taken() - before;
  if (pieces == 0) return;
  last_read_ = loop_.now();
  *moved += pieces;
  Count(loop_.shared().bytes_in, pieces);
}

bool ServerConnectionImpl::ReadOnce(size_t* moved) {
  const uint64_t pieces_before = reader_.piece_bytes_taken();
  absl::Status status;
  if (reader_.has_pieces()) {
    status = reader_.Continue();
  } else {
    if (!readable_) return false;
    iov_.clear();
    status = reader_.NextRead(&iov_);
    if (status.ok() && iov_.empty()) return false;
    if (status.ok()) {
      const auto got = link_->Read(iov_);
      if (!got.ok()) {
        if (got.status().code() == absl::StatusCode::kInvalidArgument) {
          DoProtocolError(got.status());
        } else {
          Fail(Annotate(got.status(), peer_.address));
        }
        return false;
      }
      // The next event tells of more, unless the end of the stream was told already.
      if (got->drained && (got->bytes == 0 || !peer_closed_)) readable_ = false;
      if (got->bytes == 0) return reader_.has_pieces();
      *moved += got->bytes;
      last_read_ = loop_.now();
      Count(loop_.shared().bytes_in, got->bytes);
      status = reader_.Advance(got->bytes);
    }
  }
  CountPieces(pieces_before, moved);
  if (!status.ok()) DoProtocolError(status);
  return status.ok();
}

void ServerConnectionImpl::Write() {
  size_t moved = 0;
  if (link_->blocked() == LinkBlock::kPeer && link_->wants_write() && !broken_.has_value()) {
    // What the link itself has to say does not wait for the peer: it may be what the peer waits
    // for.
    size_t none = 0;
    if (absl::Status status = link_->Write({}, {}, &none); !status.ok()) return Fail(status);
  }
  while (writable_ && moved < kTurnBytes && HasOutput() && !broken_.has_value()) {
    const absl::Span<iovec> pieces = queue_.Prepare(kWriteBytes);
    size_t taken = 0;
    if (!pieces.empty() || link_->wants_write()) {
      if (absl::Status status = link_->Write(pieces, queue_.kinds(), &taken); !status.ok()) {
        if (status.code() == absl::StatusCode::kInvalidArgument) return DoProtocolError(status);
        return Fail(Annotate(status, peer_.address));
      }
      if (link_->blocked() != LinkBlock::kNone) writable_ = false;
      moved += taken;
      if (taken > 0) last_write_ = loop_.now();
      Count(loop_.shared().bytes_out, taken);
    }
    unquiet_bytes_ = link_->unquiet_bytes();
    queue_.Consume(taken, unquiet_bytes_, &finished_);
    FinishItems(&finished_, absl::OkStatus());
  }
}

void ServerConnectionImpl::FinishItems(std::vector<std::unique_ptr<OutItem>>* items,
                                       const absl::Status& status) {
  if (items->empty()) return;
  std::vector<std::unique_ptr<OutItem>> batch;
  batch.swap(*items);
  // Held before any is removed: several items may be of one call.
  std::vector<std::shared_ptr<ServedCall>> calls;
  for (const auto& item : batch) {
    calls.push_back(item->stream == &control_
                        ? nullptr
                        : static_cast<ServedCall*>(item->stream)->shared_from_this());
  }
  for (size_t i = 0; i < batch.size(); ++i) {
    OutItem* const item = batch[i].get();
    const std::shared_ptr<ServedCall>& call = calls[i];
    item->source.reset();
    if (item->sent != nullptr) {
      item->sent(call != nullptr && call->aborted ? absl::CancelledError("the call was cancelled")
                                                  : status);
    }
    if (call != nullptr && !call->gone && call->answered && call->items.empty() &&
        call->in_flight == 0) {
      RemoveCall(call.get());
    }
  }
}

// --- frames ---

bool ServerConnectionImpl::OverLimits() const {
  const ServerLimits& limits = loop_.shared().options.limits;
  return calls_.size() >= limits.max_calls_per_connection ||
         held_bytes_ + queue_.queued_meta_bytes() >= limits.max_buffered_bytes_per_connection;
}

bool ServerConnectionImpl::ReadyForFrame(const FrameHeader& header) {
  if (state_ != State::kOpen || header.type == FrameType::kData || !OverLimits()) return true;
  // Behind this frame may come the payload that a call waits for, or the cancel of one: it has to
  // be read, and a request is then refused. Within bounds: each takes an entry until it is
  // answered.
  const size_t most = 2 * size_t{loop_.shared().options.limits.max_calls_per_connection};
  return (receiving_ > 0 || header.type == FrameType::kCancel) && calls_.size() < most;
}

absl::Status ServerConnectionImpl::OnFrame(const FrameHeader& header, std::string_view meta) {
  frame_call_ = nullptr;
  if (broken_.has_value() || draining_) return absl::OkStatus();
  if (state_ != State::kOpen) return OnHandshakeFrame(header, meta);
  switch (header.type) {
    case FrameType::kHello:
    case FrameType::kHelloAck:
    case FrameType::kAuth:
    case FrameType::kAuthOk:
    case FrameType::kCancelDone:
      return absl::InvalidArgumentError(
          absl::StrCat("frame type ", static_cast<int>(header.type), " is out of place"));
    case FrameType::kData: {
      // Of a call that has ended meanwhile: discarded.
      const auto it = calls_.find(header.request_id);
      if (it != calls_.end()) frame_call_ = it->second;
      return absl::OkStatus();
    }
    case FrameType::kCancel:
      OnCancel(header.request_id);
      return absl::OkStatus();
    default:
      return OnRequestFrame(header, meta);
  }
}

void ServerConnectionImpl::Refuse(const absl::Status& why) {
  CISTERN_LOG_EVERY(Warning, absl::Seconds(10), "handshake with ", peer_.address,
                    " failed: ", why.ToString());
  wire::ErrorReply error;
  error.set_code(static_cast<uint32_t>(why.code()));
  error.set_message(std::string(why.message()));
  SendControl(FrameType::kError, 0, error);
  draining_ = true;
}

absl::Status ServerConnectionImpl::OnHandshakeFrame(const FrameHeader& header,
                                                    std::string_view meta) {
  if (refusal_.has_value()) {
    Refuse(*refusal_);
    return absl::OkStatus();
  }
  if (state_ == State::kHello) {
    wire::Hello hello;
    if (header.type != FrameType::kHello ||
        !hello.ParseFromArray(meta.data(), static_cast<int>(meta.size()))) {
      return absl::InvalidArgumentError("handshake: no Hello");
    }
    auto ack = handshake_->OnHello(hello);
    if (!ack.ok()) {
      Refuse(ack.status());
      return absl::OkStatus();
    }
    SendControl(FrameType::kHelloAck, header.request_id, *ack);
    state_ = State::kAuth;
    return absl::OkStatus();
  }
  wire::Auth auth;
  if (header.type != FrameType::kAuth ||
      !auth.ParseFromArray(meta.data(), static_cast<int>(meta.size()))) {
    return absl::InvalidArgumentError("handshake: no Auth");
  }
  return OnAuth(header, auth);
}

absl::Status ServerConnectionImpl::OnAuth(const FrameHeader& header, const wire::Auth& auth) {
  wire::AuthOk ok;
  absl::Status status = handshake_->OnAuth(auth);
  if (status.ok()) status = link_->OnServerReady(handshake_->small_lane(), &ok);
  if (status.ok() && link_->extra_fd() >= 0) status = loop_.WatchExtra(this, link_->extra_fd());
  if (!status.ok()) {
    Refuse(status);
    return absl::OkStatus();
  }
  SendControl(FrameType::kAuthOk, header.request_id, ok);
  const PeerInfo before = std::move(peer_);
  peer_ = handshake_->peer();
  peer_.address = before.address;
  peer_.wire = before.wire;
  if (handshake_->small_lane()) reader_.SetHeadBytes(kSmallLaneHeadBytes);
  reader_.SetCarrier(link_->carrier());
  reader_.SetPlacingCarrier(link_->placing_carrier());
  handshake_.reset();
  const ServerLimits& limits = loop_.shared().options.limits;
  reader_.SetLimits(limits.max_meta_bytes, limits.max_payload_bytes);
  state_ = State::kOpen;
  connected_ = true;
  handler_.OnConnected(*this);
  return absl::OkStatus();
}

absl::Status ServerConnectionImpl::OnRequestFrame(const FrameHeader& header,
                                                  std::string_view meta) {
  const bool refused = OverLimits();
  auto call = std::make_shared<ServedCall>(shared_from_this(), header.request_id);
  if (!calls_.emplace(header.request_id, call).second) {
    return absl::InvalidArgumentError(absl::StrCat("request id ", header.request_id, " is in use"));
  }
  Count(loop_.shared().calls);
  call->type = header.type;
  call->received_at = loop_.now();
  call->inline_payload_bytes = header.payload_bytes;
  frame_call_ = call;
  auto served = std::make_unique<ServerCallImpl>(call);
  if (refused) {
    served->Fail(absl::ResourceExhaustedError("too many requests at once on this connection"));
    return absl::OkStatus();
  }
  call->meta.assign(meta);
  call->held_bytes = meta.size();
  held_bytes_ += meta.size();
  handler_.OnRequest(std::move(served));
  return absl::OkStatus();
}

FrameReceiver::Take ServerConnectionImpl::PayloadBuffers(size_t max_bytes, size_t max_pieces,
                                                         std::vector<iovec>* out,
                                                         absl::Status* error) {
  ServedCall* call = frame_call_.get();
  if (call == nullptr || call->answered || call->over || broken_.has_value()) {
    return Take::kDiscard;
  }
  if (call->sink == nullptr) return Take::kPause;
  const size_t before = out->size();
  call->sink->NextBuffers(static_cast<size_t>(std::min<uint64_t>(max_bytes, call->receive_left)),
                          max_pieces, out);
  if (out->size() == before) {
    *error = absl::InvalidArgumentError("more payload than the request allows");
    return Take::kPause;
  }
  return Take::kBuffers;
}

absl::Status ServerConnectionImpl::PayloadLanded(size_t bytes) {
  const std::shared_ptr<ServedCall> call = frame_call_;
  if (call == nullptr || call->sink == nullptr) return absl::OkStatus();
  return Received(call.get(), bytes, call->sink->Landed(bytes));
}

absl::Status ServerConnectionImpl::PayloadAt(const char* from, size_t bytes, size_t* taken) {
  *taken = 0;
  const std::shared_ptr<ServedCall> call = frame_call_;
  if (call == nullptr || call->answered || call->over || broken_.has_value() ||
      call->sink == nullptr) {
    return absl::OkStatus();
  }
  const auto most = static_cast<size_t>(std::min<uint64_t>(bytes, call->receive_left));
  const absl::Status status = call->sink->TakeFrom(from, most, taken);
  if (status.ok() && *taken == 0) return absl::OkStatus();
  return Received(call.get(), *taken, status);
}

// The sink has had `bytes` more, and said `status`.
absl::Status ServerConnectionImpl::Received(ServedCall* call, size_t bytes,
                                            const absl::Status& status) {
  call->last_progress = loop_.now();
  call->receive_left -= bytes;
  if (!status.ok()) {
    EndReceive(call, status);
    return status;
  }
  if (call->receive_left == 0) EndReceive(call, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status ServerConnectionImpl::OnFrameEnd() {
  frame_call_ = nullptr;
  return absl::OkStatus();
}

void ServerConnectionImpl::SendControl(FrameType type, uint64_t request_id,
                                       const google::protobuf::MessageLite& meta) {
  control_.id = request_id;
  queue_.PushFirst(&control_, MakeItem(type, kFlagFinal, meta));
}

void ServerConnectionImpl::OnCancel(uint64_t request_id) {
  wire::CancelDone done;
  const auto it = calls_.find(request_id);
  if (it == calls_.end()) {
    // Its final frame is on the way: the caller ignores this.
    auto stray = std::make_shared<ServedCall>(shared_from_this(), request_id);
    stray->answered = stray->over = true;
    calls_.emplace(request_id, stray);
    queue_.PushFirst(stray.get(), MakeItem(FrameType::kCancelDone, kFlagFinal, done));
    return;
  }
  const std::shared_ptr<ServedCall> call = it->second;
  if (call->aborted) return;  // a Cancel sent twice
  AbortCall(call, absl::CancelledError("the caller cancelled"));
  done.set_found(true);
  queue_.PushFirst(call.get(), MakeItem(FrameType::kCancelDone, kFlagFinal, done));
}

// --- calls ---

void ServerConnectionImpl::AbortCall(const std::shared_ptr<ServedCall>& call,
                                     const absl::Status& status) {
  const bool answered = call->answered;
  call->aborted = true;
  call->answered = true;
  std::vector<std::unique_ptr<OutItem>> dropped;
  queue_.Abort(call.get(), &dropped);
  EndReceive(call.get(), status);
  for (auto& item : dropped) {
    item->source.reset();
    if (item->sent != nullptr) item->sent(status);
  }
  auto on_abort = std::move(call->on_abort);
  call->on_abort = nullptr;
  if (on_abort != nullptr && !answered) on_abort(status);
}

void ServerConnectionImpl::EndReceive(ServedCall* call, const absl::Status& status) {
  if (call->sink == nullptr) return;
  if (state_ != State::kClosed && frame_call_.get() == call && link_->receiving()) {
    // The device would go on writing to what is given up here.
    link_->Close();
    Fail(Annotate(absl::UnavailableError("a transfer was given up half way"), peer_.address));
  }
  call->sink = nullptr;
  --receiving_;
  auto done = std::move(call->received);
  call->received = nullptr;
  done(status);
}

void ServerConnectionImpl::RemoveCall(ServedCall* call) {
  call->over = call->gone = true;
  held_bytes_ -= call->held_bytes;
  if (frame_call_.get() == call) frame_call_ = nullptr;
  calls_.erase(call->id);
  if (reader_.paused()) WantTurn();
}

void ServerConnectionImpl::DoReply(const std::shared_ptr<ServedCall>& call,
                                   std::unique_ptr<OutItem> item, bool final) {
  if (call->over || call->answered) {
    item->source.reset();
    if (item->sent != nullptr) item->sent(absl::UnavailableError("the call has ended"));
    return;
  }
  if (item->source != nullptr) {
    const uint64_t bytes = item->source->memory_bytes();
    call->held_bytes += bytes;
    held_bytes_ += bytes;
  }
  queue_.Push(call.get(), std::move(item));
  if (final) {
    call->answered = true;
    call->on_abort = nullptr;
    EndReceive(call.get(), absl::CancelledError("the call was answered"));
  }
  WantTurn();
}

void ServerConnectionImpl::DoReceive(const std::shared_ptr<ServedCall>& call, uint64_t bytes,
                                     PayloadSink* sink,
                                     absl::AnyInvocable<void(absl::Status)> done) {
  if (call->over || call->answered) {
    done(call->aborted ? absl::CancelledError("the call was aborted")
                       : absl::FailedPreconditionError("the call has ended"));
    return;
  }
  if (bytes == 0) {
    done(absl::OkStatus());
    return;
  }
  CISTERN_CHECK(call->sink == nullptr);
  call->sink = sink;
  call->receive_left = bytes;
  call->received = std::move(done);
  call->last_progress = loop_.now();
  ++receiving_;
  WantTurn();
}

void ServerConnectionImpl::DoOnAbort(const std::shared_ptr<ServedCall>& call,
                                     absl::AnyInvocable<void(absl::Status)> fn) {
  if (call->aborted) {
    fn(absl::CancelledError("the call was aborted"));
  } else if (!call->answered && !call->over) {
    call->on_abort = std::move(fn);
  }
}

void ServerConnectionImpl::DoSetDeadline(const std::shared_ptr<ServedCall>& call,
                                         MonoTime deadline) {
  if (call->over || call->gone) return;
  call->deadline = deadline;
  WakeBy(deadline + loop_.shared().options.limits.stall_timeout);
}

// --- ends ---

void ServerConnectionImpl::Close(const absl::Status& why) {
  if (state_ == State::kClosed) return;
  // Whatever ended it: a caller that does not believe our proof just hangs up.
  if (state_ != State::kOpen) Count(loop_.shared().handshake_failures);
  state_ = State::kClosed;
  const absl::Status status = Annotate(absl::UnavailableError(why.message()),
                                       absl::StrCat("connection to ", peer_.address));
  std::unordered_map<uint64_t, std::shared_ptr<ServedCall>> calls;
  calls.swap(calls_);
  frame_call_ = nullptr;
  if (link_->extra_fd() >= 0) loop_.UnwatchExtra(link_->extra_fd());
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  loop_.DetachLink(link_.get());
  link_->Close();
  std::vector<std::unique_ptr<OutItem>> items;
  queue_.Clear(&items);
  for (const auto& [id, call] : calls) call->over = true;
  for (auto& item : items) {
    item->source.reset();
    if (item->sent != nullptr) item->sent(status);
  }
  for (const auto& [id, call] : calls) {
    const bool answered = call->answered;
    if (!answered) call->aborted = true;
    EndReceive(call.get(), status);
    auto on_abort = std::move(call->on_abort);
    call->on_abort = nullptr;
    if (on_abort != nullptr && !answered) on_abort(status);
  }
  if (connected_) handler_.OnDisconnected(*this);
  loop_.Remove(this);
}

MonoTime ServerConnectionImpl::Deadline(bool* stall) const {
  const ServerLimits& limits = loop_.shared().options.limits;
  *stall = false;
  if (state_ != State::kOpen) return accepted_at_ + limits.handshake_timeout;
  MonoTime deadline = MonoTime::Infinite();
  if (reader_.mid_frame() && !reader_.paused()) deadline = last_read_;
  if ((HasOutput() && !writable_) || link_->unquiet_bytes() > 0) {
    deadline = std::min(deadline, last_write_);
  }
  if (receiving_ > 0 && !reader_.paused()) {
    for (const auto& [id, call] : calls_) {
      if (call->sink != nullptr) deadline = std::min(deadline, call->last_progress);
    }
  }
  for (const auto& [id, call] : calls_) {
    // Of a call that is still worked on only a payload on its way counts.
    const bool transfers = call->sink != nullptr || !call->items.empty() || call->in_flight != 0;
    if (transfers) deadline = std::min(deadline, call->deadline);
  }
  if (deadline != MonoTime::Infinite()) {
    *stall = true;
    return deadline + limits.stall_timeout;
  }
  if (!calls_.empty()) return MonoTime::Infinite();
  return std::max(last_read_, last_write_) + limits.idle_timeout;
}

// A timer that is too early costs one look; one that is missing would cost the connection's end.
void ServerConnectionImpl::UpdateTimer() {
  const ServerLimits& limits = loop_.shared().options.limits;
  MonoTime earliest = accepted_at_ + limits.handshake_timeout;
  if (state_ == State::kOpen) {
    const bool transfer = receiving_ > 0 || reader_.mid_frame() || (HasOutput() && !writable_) ||
                          link_->unquiet_bytes() > 0;
    earliest = loop_.now() + (transfer ? std::min(limits.stall_timeout, limits.idle_timeout)
                                       : limits.idle_timeout);
  }
  WakeBy(earliest);
}

void ServerConnectionImpl::WakeBy(MonoTime when) {
  if (when >= timer_at) return;
  timer_at = when;
  loop_.SetTimer(this, when);
}

void ServerConnectionImpl::OnTimer() {
  timer_at = MonoTime::Infinite();
  if (state_ == State::kClosed) return;
  bool stall = false;
  const MonoTime deadline = Deadline(&stall);
  if (deadline <= loop_.now()) {
    if (state_ != State::kOpen) {
      Close(absl::DeadlineExceededError("no handshake in time"));
    } else {
      if (stall) Count(loop_.shared().stalled);
      Close(absl::DeadlineExceededError(stall ? "the peer's transfer stalled" : "idle"));
    }
    return;
  }
  if (deadline != MonoTime::Infinite()) {
    timer_at = deadline;
    loop_.SetTimer(this, deadline);
  } else {
    UpdateTimer();
  }
}

}  // namespace cistern::transport
