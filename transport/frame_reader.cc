#include "transport/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr size_t kMaxPieces = 1000;  // below IOV_MAX (1024)
constexpr size_t kScratchBytes = 64 << 10;
// A buffer grown beyond this for one long meta is given back when that is done. What it grows to
// for a lookup of 8,000 keys is kept: growing it for each cost more than reading.
constexpr size_t kKeptBytes = 128 << 10;

// Where discarded bytes go: nobody reads them.
uint8_t* Scratch() {
  thread_local std::unique_ptr<uint8_t[]> scratch(new uint8_t[kScratchBytes]);
  return scratch.get();
}

}  // namespace

void FrameReader::SetLimits(uint32_t max_meta_bytes, uint64_t max_payload_bytes) {
  options_.max_meta_bytes = max_meta_bytes;
  options_.max_payload_bytes = max_payload_bytes;
}

void FrameReader::EnsureRoom(size_t bytes) {
  if (head_ == tail_) {
    head_ = tail_ = 0;
    if (buffer_.size() > kKeptBytes && bytes <= kKeptBytes) std::vector<uint8_t>().swap(buffer_);
  }
  if (buffer_.size() - tail_ >= bytes) return;
  if (head_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + head_, tail_ - head_);
    tail_ -= head_;
    head_ = 0;
  }
  if (buffer_.size() - tail_ < bytes) buffer_.resize(tail_ + bytes);
}

absl::Status FrameReader::NextRead(std::vector<iovec>* out) {
  if (paused_ || waits_for_place_) return absl::OkStatus();
  if (payload_left_ > 0 && carrier_ == nullptr && placing_ == nullptr) {
    // Parse() has left nothing buffered of it.
    const size_t max =
        static_cast<size_t>(std::min<uint64_t>(payload_left_, options_.payload_read_bytes));
    const size_t first = out->size();
    absl::Status error;
    switch (receiver_.PayloadBuffers(max, kMaxPieces, out, &error)) {
      case FrameReceiver::Take::kPause:
        CISTERN_RETURN_IF_ERROR(error);
        paused_ = true;
        return absl::OkStatus();
      case FrameReceiver::Take::kDiscard:
        read_kind_ = ReadKind::kScratch;
        out->push_back({Scratch(), std::min(max, kScratchBytes)});
        return absl::OkStatus();
      case FrameReceiver::Take::kBuffers:
        break;
    }
    read_kind_ = ReadKind::kPayload;
    payload_offered_ = 0;
    for (size_t i = first; i < out->size(); ++i) payload_offered_ += (*out)[i].iov_len;
    CISTERN_CHECK(payload_offered_ > 0 && payload_offered_ <= max);
    if (payload_offered_ == payload_left_) {
      // The next header comes with the tail of this payload.
      EnsureRoom(options_.head_bytes);
      out->push_back({buffer_.data() + tail_, options_.head_bytes});
    }
    return absl::OkStatus();
  }
  read_kind_ = ReadKind::kHead;
  // Doubling: a peer that announces a long meta gets memory as fast as it sends.
  EnsureRoom(std::max(options_.head_bytes, tail_ - head_));
  out->push_back({buffer_.data() + tail_, buffer_.size() - tail_});
  return absl::OkStatus();
}

absl::Status FrameReader::Advance(size_t bytes) {
  turn_left_ = kTurnPieceBytes;
  switch (read_kind_) {
    case ReadKind::kHead:
      tail_ += bytes;
      break;
    case ReadKind::kScratch:
      payload_left_ -= bytes;
      break;
    case ReadKind::kPayload: {
      const size_t landed = std::min(bytes, payload_offered_);
      payload_left_ -= landed;
      tail_ += bytes - landed;
      CISTERN_RETURN_IF_ERROR(receiver_.PayloadLanded(landed));
      break;
    }
  }
  return Parse();
}

absl::Status FrameReader::Resume() {
  paused_ = false;
  return Continue();
}

absl::Status FrameReader::Continue() {
  turn_left_ = kTurnPieceBytes;
  return Parse();
}

absl::Status FrameReader::Parse() {
  bool progress = true;
  has_pieces_ = false;
  waits_for_place_ = false;
  while (progress && !paused_) {
    progress = false;
    waits_for_place_ = false;
    if (placing_ != nullptr && payload_left_ > 0) {
      CISTERN_RETURN_IF_ERROR(StepPlaced(&progress));
    } else if (carrier_ != nullptr && piece_left_ > 0) {
      CISTERN_RETURN_IF_ERROR(TakePiece(&progress));
    } else if (carrier_ != nullptr && (payload_left_ > 0 || !in_frame_) &&
               tail_ - head_ >= PieceCarrier::kRecordBytes &&
               carrier_->IsRecord(buffer_.data() + head_)) {
      CISTERN_RETURN_IF_ERROR(TakeRecord(&progress));
    } else if (payload_left_ > 0 && carrier_ != nullptr) {
      if (tail_ - head_ >= PieceCarrier::kRecordBytes) {
        return absl::InvalidArgumentError("frame: no record where payload has to be announced");
      }
    } else if (payload_left_ > 0) {
      if (tail_ > head_) CISTERN_RETURN_IF_ERROR(TakeBuffered(&progress));
    } else if (in_frame_) {
      in_frame_ = false;
      progress = true;
      CISTERN_RETURN_IF_ERROR(receiver_.OnFrameEnd());
    } else {
      CISTERN_RETURN_IF_ERROR(ParseFrame(&progress));
    }
  }
  return absl::OkStatus();
}

absl::Status FrameReader::TakeBuffered(bool* progress) {
  size_t max = static_cast<size_t>(std::min<uint64_t>(payload_left_, tail_ - head_));
  if (placing_ != nullptr) max = static_cast<size_t>(std::min<uint64_t>(max, raw_left_));
  iov_.clear();
  absl::Status error;
  switch (receiver_.PayloadBuffers(max, kMaxPieces, &iov_, &error)) {
    case FrameReceiver::Take::kPause:
      CISTERN_RETURN_IF_ERROR(error);
      paused_ = true;
      return absl::OkStatus();
    case FrameReceiver::Take::kDiscard:
      head_ += max;
      payload_left_ -= max;
      if (placing_ != nullptr) raw_left_ -= max;
      *progress = true;
      return absl::OkStatus();
    case FrameReceiver::Take::kBuffers:
      break;
  }
  size_t copied = 0;
  for (const iovec& piece : iov_) {
    std::memcpy(piece.iov_base, buffer_.data() + head_ + copied, piece.iov_len);
    copied += piece.iov_len;
  }
  CISTERN_CHECK(copied > 0 && copied <= max);
  head_ += copied;
  payload_left_ -= copied;
  if (placing_ != nullptr) raw_left_ -= copied;
  *progress = true;
  return receiver_.PayloadLanded(copied);
}

absl::Status FrameReader::TakeRecord(bool* progress) {
  uint64_t bytes = 0;
  CISTERN_RETURN_IF_ERROR(carrier_->OnRecord(buffer_.data() + head_, &bytes));
  head_ += PieceCarrier::kRecordBytes;
  *progress = true;
  if (bytes > payload_left_) {
    return absl::InvalidArgumentError("frame: a piece beyond the frame's payload");
  }
  piece_left_ = bytes;
  return absl::OkStatus();
}

absl::Status FrameReader::TakePiece(bool* progress) {
  if (turn_left_ == 0) {
    has_pieces_ = true;
    return absl::OkStatus();
  }
  const size_t max = static_cast<size_t>(
      std::min({piece_left_, turn_left_, uint64_t{options_.payload_read_bytes}}));
  size_t taken = 0;
  if (const absl::Span<const char> at = carrier_->Peek(max); !at.empty()) {
    CISTERN_RETURN_IF_ERROR(receiver_.PayloadAt(at.data(), at.size(), &taken));
    if (taken > 0) {
      CISTERN_CHECK(taken <= at.size());
      CISTERN_RETURN_IF_ERROR(carrier_->Skip(taken));
      PieceTaken(taken);
      *progress = true;
      return absl::OkStatus();
    }
  }
  iov_.clear();
  absl::Status error;
  taken = max;
  bool wanted = false;
  switch (receiver_.PayloadBuffers(max, kMaxPieces, &iov_, &error)) {
    case FrameReceiver::Take::kPause:
      CISTERN_RETURN_IF_ERROR(error);
      paused_ = true;
      return absl::OkStatus();
    case FrameReceiver::Take::kDiscard:
      CISTERN_RETURN_IF_ERROR(carrier_->Skip(max));
      break;
    case FrameReceiver::Take::kBuffers:
      wanted = true;
      taken = 0;
      for (const iovec& piece : iov_) taken += piece.iov_len;
      CISTERN_CHECK(taken > 0 && taken <= max);
      CISTERN_RETURN_IF_ERROR(carrier_->Copy(iov_));
      break;
  }
  PieceTaken(taken);
  *progress = true;
  return wanted ? receiver_.PayloadLanded(taken) : absl::OkStatus();
}

void FrameReader::PieceTaken(size_t bytes) {
  piece_left_ -= bytes;
  payload_left_ -= bytes;
  turn_left_ -= bytes;
  piece_bytes_taken_ += bytes;
}

absl::Status FrameReader::StepPlaced(bool* progress) {
  if (raw_left_ > 0) {
    if (tail_ > head_) return TakeBuffered(progress);
    return absl::OkStatus();
  }
  // All that is announced first, so that its places are asked for at once.
  CISTERN_RETURN_IF_ERROR(TakeAnnouncement(progress));
  if (*progress) return absl::OkStatus();
  CISTERN_RETURN_IF_ERROR(TakeArrived(progress));
  if (*progress || has_pieces_) return absl::OkStatus();
  return PlaceMore(progress);
}

absl::Status FrameReader::TakeAnnouncement(bool* progress) {
  const uint64_t announced = placing_->placed_bytes() + placing_->unplaced_bytes();
  if (tail_ - head_ < PlacingCarrier::kRecordBytes) return absl::OkStatus();
  // What follows is behind payload that has to be there first; what it is will be seen then.
  waits_for_place_ = announced > 0;
  if (announced == payload_left_) return absl::OkStatus();
  if (!placing_->IsRecord(buffer_.data() + head_)) {
    return absl::InvalidArgumentError("frame: no record where payload has to be announced");
  }
  if (placing_->IsRaw(buffer_.data() + head_) && announced > 0) return absl::OkStatus();
  waits_for_place_ = false;
  CISTERN_ASSIGN_OR_RETURN(const PlacingCarrier::Announced next,
                           placing_->OnRecord(buffer_.data() + head_));
  if (next.bytes > payload_left_ - announced) {
    return absl::InvalidArgumentError("frame: a piece beyond the frame's payload");
  }
  head_ += PlacingCarrier::kRecordBytes;
  if (next.raw) raw_left_ = next.bytes;
  *progress = true;
  return absl::OkStatus();
}

absl::Status FrameReader::TakeArrived(bool* progress) {
  const PlacingCarrier::Arrived arrived = placing_->arrived();
  if (arrived.bytes == 0) return absl::OkStatus();
  if (turn_left_ == 0) {
    has_pieces_ = true;
    return absl::OkStatus();
  }
  const uint64_t bytes =
      std::min({arrived.bytes, turn_left_, uint64_t{options_.payload_read_bytes}});
  placing_->Take(bytes);
  payload_left_ -= bytes;
  turn_left_ -= bytes;
  piece_bytes_taken_ += bytes;
  *progress = true;
  return arrived.wanted ? receiver_.PayloadLanded(static_cast<size_t>(bytes)) : absl::OkStatus();
}

absl::Status FrameReader::PlaceMore(bool* progress) {
  const uint64_t unplaced = placing_->unplaced_bytes();
  if (unplaced == 0) return absl::OkStatus();
  const uint64_t placed = placing_->placed_bytes();
  iov_.clear();
  absl::Status error;
  switch (
      receiver_.PayloadBuffers(static_cast<size_t>(placed + unplaced), kMaxPieces, &iov_, &error)) {
    case FrameReceiver::Take::kPause:
      CISTERN_RETURN_IF_ERROR(error);
      // What is on its way has its places: the receiver was there.
      CISTERN_CHECK(placed == 0);
      paused_ = true;
      return absl::OkStatus();
    case FrameReceiver::Take::kDiscard:
      placing_->PassOver(unplaced);
      *progress = true;
      return absl::OkStatus();
    case FrameReceiver::Take::kBuffers:
      break;
  }
  // The receiver's position moves when bytes land: the first of the buffers are given already.
  uint64_t skip = placed;
  size_t first = 0;
  while (first < iov_.size() && skip >= iov_[first].iov_len) skip -= iov_[first++].iov_len;
  if (first == iov_.size()) return absl::OkStatus();
  iov_[first].iov_base = static_cast<char*>(iov_[first].iov_base) + skip;
  iov_[first].iov_len -= skip;
  CISTERN_ASSIGN_OR_RETURN(const uint64_t now,
                           placing_->Place(absl::MakeSpan(iov_).subspan(first)));
  *progress = now > 0 && now < unplaced;
  return absl::OkStatus();
}

absl::Status FrameReader::ParseFrame(bool* progress) {
  if (tail_ - head_ < kFrameHeaderBytes) return absl::OkStatus();
  auto header = DecodeFrameHeader(buffer_.data() + head_, options_.max_meta_bytes,
                                  options_.max_payload_bytes);
  if (!header.ok()) return header.status();
  if (!receiver_.ReadyForFrame(*header)) {
    paused_ = true;
    return absl::OkStatus();
  }
  if (tail_ - head_ < kFrameHeaderBytes + header->meta_bytes) return absl::OkStatus();
  const uint8_t* meta = buffer_.data() + head_ + kFrameHeaderBytes;
  if (Crc32c(meta, header->meta_bytes) != header->meta_crc) {
    return absl::InvalidArgumentError("frame: the checksum of the meta is wrong");
  }
  head_ += kFrameHeaderBytes + header->meta_bytes;
  payload_left_ = header->payload_bytes;
  in_frame_ = true;
  *progress = true;
  return receiver_.OnFrame(*header,
                           {reinterpret_cast<const char*>(meta), size_t{header->meta_bytes}});
}

}  // namespace cistern::transport
