#include "transport/shm/shm_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

// A piece is put off rather than cut shorter than this.
constexpr uint64_t kLeastRoomBytes = 64 << 10;
static_assert(kLeastRoomBytes <= kMinRingBytes / 2);
static_assert(kMaxPieceBytes <= kMinRingBytes);

}  // namespace

void ShmLink::UseRings(RingMemory memory, RingCounters* out_counters, char* out_ring,
                       RingCounters* in_counters, const char* in_ring) {
  memory_ = std::move(memory);
  out_.emplace(out_counters, out_ring, memory_.ring_bytes());
  in_.emplace(in_counters, in_ring, memory_.ring_bytes());
}

// --- receiving ---

absl::StatusOr<StreamLink::Received> ShmLink::Read(absl::Span<const iovec> pieces) {
  CISTERN_ASSIGN_OR_RETURN(const FdRead read,
                           ReadWithFds(socket_, pieces, fds_wanted(), &received_fds_));
  // They come with the message whose record names them, so that a read can end with one waiting and
  // the next bring another: more are a flood.
  if (received_fds_.size() > 2) {
    return absl::InvalidArgumentError("shm: descriptors came that nothing names");
  }
  return Received{read.bytes, read.drained};
}

absl::Status ShmLink::OnRecord(const uint8_t* bytes, uint64_t* piece_bytes) {
  const PieceRecord record = DecodeRecord(bytes);
  *piece_bytes = 0;
  if (record.kind != RecordKind::kRing) return OnOtherRecord(record, piece_bytes);
  if (record.position != in_->taken()) {
    return absl::InvalidArgumentError("shm: a piece out of order");
  }
  return AnnouncePiece(record.bytes, /*lent=*/false, 0, 0, piece_bytes);
}

absl::Status ShmLink::AnnouncePiece(uint32_t bytes, bool lent, uint16_t buffer, uint64_t offset,
                                    uint64_t* piece_bytes) {
  if (bytes == 0 || bytes > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("shm: a piece of ", bytes, " bytes"));
  }
  piece_left_ = bytes;
  piece_is_lent_ = lent;
  lent_buffer_ = buffer;
  lent_offset_ = offset;
  *piece_bytes = bytes;
  return absl::OkStatus();
}

absl::Status ShmLink::Copy(absl::Span<const iovec> to) {
  uint64_t bytes = 0;
  for (const iovec& piece : to) bytes += piece.iov_len;
  CISTERN_CHECK(bytes <= piece_left_);
  if (!piece_is_lent_) {
    piece_left_ -= bytes;
    in_->Take(to);
    if (in_->TakeWake()) WakePeer();
    return absl::OkStatus();
  }
  CISTERN_RETURN_IF_ERROR(ReadLent(lent_offset_, to));
  return Skip(bytes);
}

absl::Status ShmLink::Skip(uint64_t bytes) {
  CISTERN_CHECK(bytes <= piece_left_);
  piece_left_ -= bytes;
  lent_offset_ += bytes;
  in_->Pass(bytes);
  if (in_->TakeWake()) WakePeer();
  return absl::OkStatus();
}

absl::Span<const char> ShmLink::Peek(size_t max) {
  max = static_cast<size_t>(std::min<uint64_t>(max, piece_left_));
  return piece_is_lent_ ? PeekLent(lent_offset_, max) : in_->Peek(max);
}

absl::Status ShmLink::ReadLent(uint64_t, absl::Span<const iovec>) {
  return absl::InvalidArgumentError("shm: nothing is lent this way");
}

// --- sending ---

void ShmLink::AddRecord(const PieceRecord& record) {
  CISTERN_CHECK(HasRecordSlot());
  records_[record_count_] = record;
  batch_.push_back({record_bytes_[record_count_].data(), kRecordBytes});
  ++record_count_;
  ring_record_open_ = false;
}

absl::Status ShmLink::Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                            size_t* taken) {
  *taken = 0;
  const bool was_blocked_by_peer = blocked_ == LinkBlock::kPeer;
  blocked_ = LinkBlock::kNone;
  CISTERN_RETURN_IF_ERROR(SendLeftover());
  if (blocked_ != LinkBlock::kNone) return absl::OkStatus();
  batch_.clear();
  record_count_ = 0;
  ring_record_open_ = false;
  if (memory_) AddOwnRecords();
  if (absl::Status status = Gather(pieces, kinds, taken); !status.ok()) return status;
  CISTERN_RETURN_IF_ERROR(SendBatch());
  // Nothing of what waits was tried.
  if (pieces.empty() && blocked_ == LinkBlock::kNone && was_blocked_by_peer) {
    blocked_ = LinkBlock::kPeer;
  }
  return absl::OkStatus();
}

absl::Status ShmLink::Gather(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                             size_t* taken) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (kinds[i] == PieceKind::kHead || !memory_) {
      batch_.push_back(pieces[i]);
      ring_record_open_ = false;
      *taken += pieces[i].iov_len;
      continue;
    }
    bool stop = false;
    CISTERN_RETURN_IF_ERROR(
        GatherPayload(pieces[i], kinds[i] == PieceKind::kCheckedPayload, taken, &stop));
    if (stop) break;
  }
  return absl::OkStatus();
}

absl::Status ShmLink::GatherPayload(iovec piece, bool checked, size_t* taken, bool* stop) {
  while (piece.iov_len > 0) {
    PieceRecord* const open = ring_record_open_ ? &records_[record_count_ - 1] : nullptr;
    // Two slots: a buffer that is lent for the first time takes one of its own.
    if (record_count_ + 2 > kMaxRecords) {
      *stop = true;
      return absl::OkStatus();
    }
    uint64_t bytes = std::min<uint64_t>(piece.iov_len, kMaxPieceBytes);
    CISTERN_ASSIGN_OR_RETURN(const uint64_t room, RoomFor(bytes));
    bytes = std::min(bytes, room);
    if (bytes == 0) {
      *stop = true;
      return absl::OkStatus();
    }
    PieceRecord record;
    record.bytes = static_cast<uint32_t>(bytes);
    if (checked && TryLend(piece.iov_base, bytes, &record, stop)) {
      AddRecord(record);
      out_->Pass(bytes);
    } else if (*stop) {
      return absl::OkStatus();
    } else if (open != nullptr && open->bytes < kMaxPieceBytes) {
      bytes = std::min<uint64_t>(bytes, kMaxPieceBytes - open->bytes);
      open->bytes += static_cast<uint32_t>(bytes);
      out_->Put(piece.iov_base, bytes);
    } else {
      record.kind = RecordKind::kRing;
      record.position = out_->sent();
      AddRecord(record);
      ring_record_open_ = true;
      out_->Put(piece.iov_base, bytes);
    }
    piece.iov_base = static_cast<char*>(piece.iov_base) + bytes;
    piece.iov_len -= bytes;
    *taken += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ShmLink::RoomFor(uint64_t wanted) {
  const uint64_t least = std::min(wanted, kLeastRoomBytes);
  CISTERN_ASSIGN_OR_RETURN(uint64_t room, out_->Room());
  if (room >= least) return room;
  if (out_->AskToBeWoken()) {
    CISTERN_ASSIGN_OR_RETURN(room, out_->Room());
    if (room >= least) return room;
  }
  blocked_ = LinkBlock::kPeer;
  return uint64_t{0};
}

absl::Status ShmLink::SendBatch() {
  if (batch_.empty()) return absl::OkStatus();
  for (size_t i = 0; i < record_count_; ++i) EncodeRecord(records_[i], record_bytes_[i].data());
  size_t total = 0;
  for (const iovec& piece : batch_) total += piece.iov_len;
  CISTERN_ASSIGN_OR_RETURN(const size_t sent, WriteWithFds(socket_, batch_, fds_to_send_));
  if (sent > 0) fds_to_send_.clear();
  if (sent == total) return absl::OkStatus();
  // What was put into the ring is announced in this order and no other: kept until it is sent.
  size_t skip = sent;
  leftover_.clear();
  leftover_at_ = 0;
  for (const iovec& piece : batch_) {
    const size_t passed = std::min(skip, piece.iov_len);
    skip -= passed;
    leftover_.append(static_cast<const char*>(piece.iov_base) + passed, piece.iov_len - passed);
  }
  blocked_ = LinkBlock::kSocket;
  return absl::OkStatus();
}

absl::Status ShmLink::SendLeftover() {
  while (leftover_at_ < leftover_.size()) {
    const iovec rest = {leftover_.data() + leftover_at_, leftover_.size() - leftover_at_};
    CISTERN_ASSIGN_OR_RETURN(const size_t sent,
                             WriteWithFds(socket_, absl::MakeConstSpan(&rest, 1), fds_to_send_));
    if (sent == 0) {
      blocked_ = LinkBlock::kSocket;
      return absl::OkStatus();
    }
    fds_to_send_.clear();
    leftover_at_ += sent;
  }
  std::string().swap(leftover_);
  leftover_at_ = 0;
  return absl::OkStatus();
}

}  // namespace cistern::transport
