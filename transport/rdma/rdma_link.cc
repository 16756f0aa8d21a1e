#include "transport/rdma/rdma_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

constexpr uint32_t kMostStreamBytes = kMessageBytes - kMessageHeaderBytes;
// Credits are given back by a message of their own when so many are due.
constexpr uint32_t kStreamReturnDue = kStreamCredits / 2;
constexpr uint32_t kNoteReturnDue = kNoteCredits / 2;
// Buffers of the inbound stream beyond this are given back when it is empty.
constexpr size_t kKeptBytes = 64 << 10;

}  // namespace

RdmaLink::RdmaLink(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<CmSide> cm,
                   unsigned int bounce_access, MemoryRights out_rights)
    : endpoint_(std::move(endpoint)),
      out_ring_(endpoint_->device().domain.get(), bounce_access),
      in_ring_(endpoint_->device().domain.get(), bounce_access),
      cm_(std::move(cm)),
      out_rights_(out_rights),
      stream_messages_(kStreamCredits),
      note_messages_(kNoteCredits) {}

RdmaLink::~RdmaLink() { Close(); }

void RdmaLink::Close() {
  if (endpoint_->closed()) return;
  if (message_open_) endpoint_->GiveBuffer(open_slot_);
  message_open_ = false;
  cm_->Disconnect();
  endpoint_->Close();
  if (failure_.ok()) failure_ = absl::UnavailableError("rdma: the connection is closed");
}

// Here, where it still turns the connection down: a peer with another wire then takes that.
absl::Status RdmaLink::PrepareRings() {
  CISTERN_RETURN_IF_ERROR(out_ring_.Prepare());
  return in_ring_.Prepare();
}

absl::Status RdmaLink::OnServerReady(bool small_lane, wire::AuthOk*) {
  ready_ = true;
  return small_lane ? absl::OkStatus() : PrepareRings();
}

absl::Status RdmaLink::OnClientReady(const wire::AuthOk&) {
  ready_ = true;
  return PrepareRings();
}

// --- turns ---

absl::Status RdmaLink::Progress() {
  if (failure_.ok()) {
    // In this order: what had come before the peer went is still read.
    const absl::Status gone = cm_->Check(endpoint_.get());
    failure_ = endpoint_->Poll(this);
    if (failure_.ok()) failure_ = gone;
    // Here, not in Flush only: bytes that the peer does not want are quiet now.
    if (failure_.ok()) Pump();
  }
  if (failure_.code() == absl::StatusCode::kInvalidArgument) return failure_;
  // What is unread stands behind payload that will not come any more.
  if (awaited_ > 0 && !failure_.ok()) return failure_;
  return inbound_at_ < inbound_.size() ? absl::OkStatus() : failure_;
}

absl::Status RdmaLink::Flush() {
  if (!failure_.ok()) return absl::OkStatus();  // Progress or Read tells
  Pump();
  CloseMessage();
  SendNotes();
  // Until the handshake is over a message may be the last, and has to arrive before the end.
  return endpoint_->Post(/*say=*/!ready_);
}

LinkBlock RdmaLink::blocked() const {
  switch (wait_) {
    case Wait::kNothing:
      return LinkBlock::kNone;
    case Wait::kStream:
      return StreamRoom() >= kRecordBytes ? LinkBlock::kNone : LinkBlock::kPeer;
    case Wait::kWindow:
      return unquiet_bytes() < kWindowBytes ? LinkBlock::kNone : LinkBlock::kPeer;
    case Wait::kRing:
      return out_ring_.full() ? LinkBlock::kPeer : LinkBlock::kNone;
  }
  return LinkBlock::kNone;
}

// --- messages ---

bool RdmaLink::CanOpenStream() const {
  // Messages of the stream leave buffers for such as carry notes only.
  const uint32_t open = message_open_ ? 1 : 0;
  return stream_messages_ > 0 && endpoint_->messages_in_flight() + open < kStreamCredits &&
         endpoint_->any_buffer();
}

size_t RdmaLink::StreamRoom() const {
  return (message_open_ ? kMostStreamBytes - open_bytes_ : 0) +
         (CanOpenStream() ? kMostStreamBytes : 0);
}

bool RdmaLink::OpenMessage() {
  if (message_open_) return true;
  if (!CanOpenStream() || !endpoint_->TakeBuffer(&open_slot_)) return false;
  --stream_messages_;
  message_open_ = true;
  open_bytes_ = 0;
  return true;
}

size_t RdmaLink::AppendStream(const void* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes && OpenMessage()) {
    const size_t n = std::min<size_t>(bytes - done, kMostStreamBytes - open_bytes_);
    std::memcpy(endpoint_->buffer(open_slot_) + kMessageHeaderBytes + open_bytes_,
                static_cast<const uint8_t*>(data) + done, n);
    open_bytes_ += static_cast<uint32_t>(n);
    done += n;
    if (open_bytes_ == kMostStreamBytes) CloseMessage();
  }
  return done;
}

void RdmaLink::AppendRecord(const Record& record) {
  uint8_t bytes[kRecordBytes];
  EncodeRecord(record, bytes);
  CISTERN_CHECK(AppendStream(bytes, kRecordBytes) == kRecordBytes);
}

void RdmaLink::FinishMessage(uint32_t slot, uint32_t stream_bytes) {
  uint8_t* const message = endpoint_->buffer(slot);
  MessageHeader header;
  header.stream_bytes = stream_bytes;
  header.stream_credits = static_cast<uint16_t>(std::exchange(stream_return_, 0));
  header.note_credits = static_cast<uint16_t>(std::exchange(note_return_, 0));
  size_t at = kMessageHeaderBytes + stream_bytes;
  while (!notes_.empty() && at + kNoteBytes <= kMessageBytes) {
    EncodeNote(notes_.front(), message + at);
    notes_.pop_front();
    at += kNoteBytes;
    ++header.notes;
  }
  EncodeMessageHeader(header, message);
  endpoint_->QueueMessage(slot, static_cast<uint32_t>(at));
}

void RdmaLink::CloseMessage() {
  if (!message_open_) return;
  message_open_ = false;
  FinishMessage(open_slot_, open_bytes_);
}

void RdmaLink::AddNote(const Note& note) {
  // Bytes that are taken add up.
  if (note.kind != NoteKind::kTarget && !notes_.empty() && notes_.back().kind == note.kind &&
      note.bytes <= UINT32_MAX - notes_.back().bytes) {
    notes_.back().bytes += note.bytes;
    return;
  }
  notes_.push_back(note);
}

void RdmaLink::SendNotes() {
  while (!notes_.empty() || stream_return_ >= kStreamReturnDue || note_return_ >= kNoteReturnDue) {
    uint32_t slot = 0;
    // The last credit is for giving back the peer's: else both ends could be without, each with the
    // other's in hand.
    const uint32_t kept = note_return_ >= kNoteReturnDue ? 0 : 1;
    if (note_messages_ <= kept || endpoint_->messages_in_flight() >= kReceives ||
        !endpoint_->TakeBuffer(&slot)) {
      return;
    }
    --note_messages_;
    FinishMessage(slot, 0);
  }
}

absl::Status RdmaLink::OnMessage(absl::Span<const uint8_t> message) {
  CISTERN_ASSIGN_OR_RETURN(const MessageHeader header,
                           DecodeMessageHeader(message.data(), message.size()));
  if (header.stream_credits > kStreamCredits - stream_messages_ ||
      header.note_credits > kNoteCredits - note_messages_) {
    return absl::InvalidArgumentError("rdma: credits were given back that were not used");
  }
  stream_messages_ += header.stream_credits;
  note_messages_ += header.note_credits;
  if (header.stream_bytes > 0) {
    CISTERN_RETURN_IF_ERROR(OnStreamMessage(header.stream_bytes));
    inbound_.append(reinterpret_cast<const char*>(message.data()) + kMessageHeaderBytes,
                    header.stream_bytes);
  } else if (note_return_ >= kNoteCredits) {
    return absl::InvalidArgumentError("rdma: more messages than credits");
  } else {
    ++note_return_;
  }
  const uint8_t* at = message.data() + kMessageHeaderBytes + header.stream_bytes;
  for (uint16_t i = 0; i < header.notes; ++i, at += kNoteBytes) {
    CISTERN_ASSIGN_OR_RETURN(const Note note, DecodeNote(at));
    CISTERN_RETURN_IF_ERROR(OnNote(note));
  }
  return absl::OkStatus();
}

absl::Status RdmaLink::OnStreamMessage(uint32_t bytes) {
  if (inbound_messages_.size() + stream_return_ >= kStreamCredits) {
    return absl::InvalidArgumentError("rdma: more messages than credits");
  }
  if (inbound_at_ == inbound_.size()) {
    if (inbound_.capacity() > kKeptBytes) std::string().swap(inbound_);
    inbound_.clear();
    inbound_at_ = 0;
  } else if (inbound_at_ >= kKeptBytes) {
    inbound_.erase(0, inbound_at_);
    inbound_at_ = 0;
  }
  inbound_messages_.push_back(bytes);
  return absl::OkStatus();
}

absl::StatusOr<StreamLink::Received> RdmaLink::Read(absl::Span<const iovec> pieces) {
  size_t copied = 0;
  for (const iovec& piece : pieces) {
    const size_t n = std::min(piece.iov_len, inbound_.size() - inbound_at_);
    std::memcpy(piece.iov_base, inbound_.data() + inbound_at_, n);
    inbound_at_ += n;
    copied += n;
  }
  for (size_t left = copied; left > 0;) {
    uint32_t& first = inbound_messages_.front();
    const size_t n = std::min<size_t>(left, first);
    first -= static_cast<uint32_t>(n);
    left -= n;
    if (first > 0) break;
    inbound_messages_.pop_front();
    ++stream_return_;
  }
  const bool drained = inbound_at_ == inbound_.size();
  if (copied == 0 && drained && !failure_.ok()) return failure_;
  return Received{copied, drained || copied == 0};
}

// --- payload that leaves ---

uint64_t RdmaLink::unquiet_bytes() const {
  return out_.empty() ? 0 : taken_ - out_.front().position;
}

absl::Status RdmaLink::Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                             size_t* taken) {
  *taken = 0;
  wait_ = Wait::kNothing;
  if (!failure_.ok()) return absl::OkStatus();
  for (size_t i = 0; i < pieces.size() && wait_ == Wait::kNothing;) {
    if (kinds[i] == PieceKind::kHead) {
      const size_t n = AppendStream(pieces[i].iov_base, pieces[i].iov_len);
      *taken += n;
      taken_ += n;
      if (n < pieces[i].iov_len) wait_ = Wait::kStream;
      ++i;
      continue;
    }
    size_t end = i;
    while (end < pieces.size() && kinds[end] != PieceKind::kHead) ++end;
    CISTERN_RETURN_IF_ERROR(WritePayload(pieces.subspan(i, end - i), taken));
    i = end;
  }
  return absl::OkStatus();
}

// A run of payload: as much of it as can leave now; wait_ says why not all.
absl::Status RdmaLink::WritePayload(absl::Span<const iovec> run, size_t* taken) {
  uint64_t bytes = 0;
  for (const iovec& piece : run) bytes += piece.iov_len;
  if (raw_left_ == 0 && bytes > kMostRawBytes) return OfferRun(run, taken);
  if (raw_left_ == 0) {
    if (StreamRoom() < kRecordBytes) {
      wait_ = Wait::kStream;
      return absl::OkStatus();
    }
    AppendRecord({.kind = RecordKind::kRaw, .bytes = static_cast<uint32_t>(bytes)});
    raw_left_ = bytes;
  }
  // A run that began raw goes on so; what was gathered behind it meanwhile is a run of its own.
  for (size_t i = 0; i < run.size(); ++i) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(run[i].iov_len, raw_left_));
    const size_t n = AppendStream(run[i].iov_base, wanted);
    *taken += n;
    taken_ += n;
    raw_left_ -= n;
    if (n < wanted) {
      wait_ = Wait::kStream;
      return absl::OkStatus();
    }
    if (n == run[i].iov_len) continue;
    std::vector<iovec> rest(run.begin() + static_cast<ptrdiff_t>(i), run.end());
    rest[0] = {static_cast<char*>(rest[0].iov_base) + n, rest[0].iov_len - n};
    return WritePayload(rest, taken);
  }
  return absl::OkStatus();
}

absl::Status RdmaLink::OfferRun(absl::Span<const iovec> run, size_t* taken) {
  std::vector<OutSegment> made;
  const size_t most = StreamRoom() < kRecordBytes ? 0 : segments_at_once();
  for (iovec piece : run) {
    while (piece.iov_len > 0) {
      if (made.size() >= most) wait_ = Wait::kStream;
      if (unquiet_bytes() >= kWindowBytes) wait_ = Wait::kWindow;
      if (wait_ != Wait::kNothing) break;
      OutSegment segment;
      segment.position = taken_;
      size_t bytes = std::min<size_t>(piece.iov_len, kTransferBytes);
      MemoryKeys keys;
      if (bytes >= kLeastDirectBytes &&
          endpoint_->device().memory.Find(piece.iov_base, out_rights_, &keys)) {
        bytes = static_cast<size_t>(std::min<uint64_t>(bytes, keys.bytes_left));
        segment.data = static_cast<const uint8_t*>(piece.iov_base);
        segment.local_key = keys.local_key;
        segment.remote_key = keys.remote_key;
      } else {
        CISTERN_ASSIGN_OR_RETURN(uint8_t* const bounce, out_ring_.Take(bytes, &bytes));
        if (bytes == 0) {
          wait_ = Wait::kRing;
          break;
        }
        std::memcpy(bounce, piece.iov_base, bytes);
        segment.data = bounce;
        segment.local_key = out_ring_.local_key();
        segment.remote_key = out_ring_.remote_key();
        segment.bounced = static_cast<uint32_t>(bytes);
      }
      segment.bytes = static_cast<uint32_t>(bytes);
      piece = {static_cast<char*>(piece.iov_base) + bytes, piece.iov_len - bytes};
      *taken += bytes;
      taken_ += bytes;
      made.push_back(segment);
      out_.push_back(segment);
    }
    if (wait_ != Wait::kNothing) break;
  }
  if (!made.empty()) AnnounceSegments(made);
  return absl::OkStatus();
}

void RdmaLink::AdvanceQuiet(uint64_t bytes) {
  while (bytes > 0) {
    OutSegment& segment = out_.front();
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes, segment.bytes));
    if (segment.bounced > 0) out_ring_.Give(n);
    segment.position += n;
    segment.bytes -= n;
    segment.data += n;
    bytes -= n;
    if (segment.bytes == 0) out_.pop_front();
  }
}

// --- payload that comes ---

bool RdmaLink::IsRaw(const uint8_t* record) const {
  const auto decoded = DecodeRecord(record);
  return decoded.ok() && decoded->kind == RecordKind::kRaw;
}

absl::StatusOr<PlacingCarrier::Announced> RdmaLink::OnRecord(const uint8_t* bytes) {
  CISTERN_ASSIGN_OR_RETURN(const Record record, DecodeRecord(bytes));
  if (record.kind == RecordKind::kRaw) return Announced{record.bytes, true};
  CISTERN_RETURN_IF_ERROR(OnOffer(record));
  if (record.bytes > kMostOfferedBytes - std::min(unplaced_, kMostOfferedBytes) ||
      offers_.size() >= kMostOffers) {
    return absl::InvalidArgumentError("rdma: more is offered than the window takes");
  }
  offers_.push_back({record.bytes, record.key, record.address});
  unplaced_ += record.bytes;
  return Announced{record.bytes, false};
}

bool RdmaLink::can_place_again() const {
  return starved_ && unplaced_ > 0 && !in_ring_.full() && endpoint_->has_room();
}

void RdmaLink::AddPlace(const InPiece& piece) {
  in_.push_back(piece);
  placed_ += piece.bytes;
  unplaced_ -= piece.bytes;
  if (piece.wanted) awaited_ += piece.bytes;
}

void RdmaLink::PassOver(uint64_t bytes) {
  OnPassedOver(bytes);
  while (bytes > 0) {
    Offer& offer = offers_.front();
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes, offer.bytes));
    AddPlace({.bytes = n, .wanted = false});
    offer.bytes -= n;
    offer.address += n;
    bytes -= n;
    if (offer.bytes == 0) offers_.pop_front();
  }
  ReachUnwanted();
}

void RdmaLink::ReachUnwanted() {
  while (!in_.empty() && !in_.front().wanted) {
    const uint64_t bytes = in_.front().bytes;
    in_.pop_front();
    AddArrived(bytes, false);
    OnUnwantedReached(bytes);
  }
}

void RdmaLink::Arrive(uint64_t bytes) {
  awaited_ -= bytes;
  while (bytes > 0) {
    InPiece& piece = in_.front();
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes, piece.bytes));
    if (piece.bounce != nullptr) {
      std::memcpy(piece.to, piece.bounce, n);
      in_ring_.Give(n);
      piece.bounce += n;
    }
    piece.to += n;
    piece.bytes -= n;
    bytes -= n;
    AddArrived(n, true);
    if (piece.bytes == 0) in_.pop_front();
    ReachUnwanted();
  }
}

void RdmaLink::AddArrived(uint64_t bytes, bool wanted) {
  if (!arrived_.empty() && arrived_.back().wanted == wanted) {
    arrived_.back().bytes += bytes;
  } else {
    arrived_.push_back({bytes, wanted});
  }
}

PlacingCarrier::Arrived RdmaLink::arrived() const {
  return arrived_.empty() ? Arrived{} : arrived_.front();
}

void RdmaLink::Take(uint64_t bytes) {
  CISTERN_CHECK(!arrived_.empty() && bytes <= arrived_.front().bytes);
  placed_ -= bytes;
  arrived_.front().bytes -= bytes;
  if (arrived_.front().bytes == 0) arrived_.pop_front();
}

}  // namespace cistern::transport::rdma
