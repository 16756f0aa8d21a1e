#include "transport/send_queue.h"

#include <algorithm>
#include <utility>

#include "base/crc32c.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr size_t kMaxPieces = 1000;  // below IOV_MAX (1024), with room for headers
static_assert(kDataFrameBytes <= kMaxDataFrameBytes);

}  // namespace

void SendQueue::Push(OutStream* stream, std::unique_ptr<OutItem> item) {
  queued_meta_bytes_ += item->meta.size();
  item->stream = stream;
  stream->items.push_back(std::move(item));
  if (!stream->ready) Enqueue(stream, /*first=*/false);
}

void SendQueue::PushFirst(OutStream* stream, std::unique_ptr<OutItem> item) {
  queued_meta_bytes_ += item->meta.size();
  item->stream = stream;
  stream->items.push_back(std::move(item));
  if (!stream->ready) Enqueue(stream, /*first=*/true);
}

void SendQueue::Enqueue(OutStream* stream, bool first) {
  stream->ready = true;
  if (first) {
    line_.insert(line_.begin() + (mid_frame_ ? 1 : 0), stream);
  } else {
    line_.push_back(stream);
  }
}

void SendQueue::AddHead(const void* data, size_t bytes) {
  if (bytes == 0) return;
  pieces_.push_back({const_cast<void*>(data), bytes});
  kinds_.push_back(PieceKind::kHead);
}

absl::Span<iovec> SendQueue::Prepare(size_t max_bytes) {
  // Only when all was written: a header buffer is then never in use twice, since an item's next
  // Data frame begins a whole frame later.
  CISTERN_CHECK(max_bytes <= kDataFrameBytes);
  if (next_piece_ == pieces_.size()) {
    pieces_.clear();
    kinds_.clear();
    next_piece_ = 0;
    size_t bytes = 0;
    while (!line_.empty() && bytes < max_bytes && pieces_.size() < kMaxPieces) {
      PrepareFrom(line_.front(), max_bytes, &bytes);
    }
    prepared_pos_ += bytes;
  }
  return absl::MakeSpan(pieces_).subspan(next_piece_);
}

void SendQueue::StartFrame(OutItem* item) {
  FrameHeader header;
  header.request_id = item->stream->id;
  const uint64_t remaining = item->source == nullptr ? 0 : item->source->remaining();
  if (!item->head_done_ && !item->data_only) {
    header.type = item->type;
    header.flags = item->flags;
    header.meta_bytes = static_cast<uint32_t>(item->meta.size());
    header.meta_crc = Crc32c(item->meta.data(), item->meta.size());
    header.payload_bytes = item->payload_in_frame ? remaining : 0;
    EncodeFrameHeader(header, item->header_);
    AddHead(item->header_, kFrameHeaderBytes);
    AddHead(item->meta.data(), item->meta.size());
    queued_meta_bytes_ -= item->meta.size();
  } else {
    header.type = FrameType::kData;
    header.payload_bytes = std::min(remaining, kDataFrameBytes);
    if (item->final_data && header.payload_bytes == remaining) header.flags = kFlagFinal;
    EncodeFrameHeader(header, item->data_header_);
    AddHead(item->data_header_, kFrameHeaderBytes);
  }
  item->head_done_ = true;
  item->frame_left_ = header.payload_bytes;
}

// One stretch of one frame. Leaves the stream at the front unless the frame has ended.
void SendQueue::PrepareFrom(OutStream* stream, size_t max_bytes, size_t* bytes) {
  OutItem* item = stream->items.front().get();
  if (!mid_frame_) {
    const bool nothing =
        item->data_only && (item->source == nullptr || item->source->remaining() == 0);
    if (!nothing) {
      const size_t first = pieces_.size();
      StartFrame(item);
      for (size_t i = first; i < pieces_.size(); ++i) *bytes += pieces_[i].iov_len;
    }
    mid_frame_ = true;
    stream->begun = true;
    if (stream->items.front()->end_pos_ == 0) {
      item->end_pos_ = 1;  // begun; the real end is set when it is known
      ++stream->in_flight;
    }
  }
  while (item->frame_left_ > 0 && *bytes < max_bytes && pieces_.size() < kMaxPieces) {
    const size_t first = pieces_.size();
    const size_t want =
        static_cast<size_t>(std::min<uint64_t>(item->frame_left_, max_bytes - *bytes));
    item->source->NextPieces(want, kMaxPieces - first, &pieces_);
    kinds_.resize(pieces_.size(), item->source->checked_by_digests() ? PieceKind::kCheckedPayload
                                                                     : PieceKind::kPayload);
    size_t got = 0;
    for (size_t i = first; i < pieces_.size(); ++i) got += pieces_[i].iov_len;
    CISTERN_CHECK(got > 0 && got <= want);
    *bytes += got;
    item->frame_left_ -= got;
  }
  if (item->frame_left_ == 0) {
    item->end_pos_ = prepared_pos_ + *bytes;
    EndFrame(stream);
  }
}

void SendQueue::EndFrame(OutStream* stream) {
  mid_frame_ = false;
  line_.pop_front();
  OutItem* item = stream->items.front().get();
  const bool more = item->source != nullptr && item->source->remaining() > 0;
  if (!more || item->truncated_) {
    in_flight_.push_back(std::move(stream->items.front()));
    stream->items.erase(stream->items.begin());
  }
  stream->ready = !stream->items.empty();
  if (stream->ready) line_.push_back(stream);
}

void SendQueue::Consume(size_t n, uint64_t unquiet,
                        std::vector<std::unique_ptr<OutItem>>* finished) {
  written_pos_ += n;
  CISTERN_CHECK(unquiet <= written_pos_);
  quiet_pos_ = written_pos_ - unquiet;
  while (n > 0) {
    iovec& piece = pieces_[next_piece_];
    const size_t part = std::min(n, piece.iov_len);
    piece.iov_base = static_cast<char*>(piece.iov_base) + part;
    piece.iov_len -= part;
    n -= part;
    if (piece.iov_len == 0) ++next_piece_;
  }
  // Heads were copied by now: an item without payload does not wait for others'.
  const auto over = [this](const OutItem& item) {
    return item.end_pos_ <= (item.source == nullptr ? written_pos_ : quiet_pos_);
  };
  size_t kept = 0;
  for (auto& item : in_flight_) {
    if (over(*item)) {
      --item->stream->in_flight;
      finished->push_back(std::move(item));
    } else {
      if (&in_flight_[kept] != &item) in_flight_[kept] = std::move(item);
      ++kept;
    }
  }
  in_flight_.resize(kept);
}

bool SendQueue::Abort(OutStream* stream, std::vector<std::unique_ptr<OutItem>>* dropped) {
  const bool in_frame = mid_frame_ && !line_.empty() && line_.front() == stream;
  absl::InlinedVector<std::unique_ptr<OutItem>, 2> items;
  items.swap(stream->items);
  if (in_frame) {
    items.front()->truncated_ = true;
    stream->items.push_back(std::move(items.front()));
    items.erase(items.begin());
  } else if (stream->ready) {
    line_.erase(std::find(line_.begin(), line_.end(), stream));
    stream->ready = false;
  }
  for (auto& item : items) {
    if (!item->head_done_ && !item->data_only) queued_meta_bytes_ -= item->meta.size();
    if (item->end_pos_ > quiet_pos_) {
      // Between two of its Data frames; the pieces of the last may still be unwritten, or read.
      item->truncated_ = true;
      in_flight_.push_back(std::move(item));
    } else {
      if (item->end_pos_ != 0) --stream->in_flight;
      dropped->push_back(std::move(item));
    }
  }
  return stream->in_flight > 0;
}

void SendQueue::Clear(std::vector<std::unique_ptr<OutItem>>* dropped) {
  for (auto& item : in_flight_) {
    --item->stream->in_flight;
    dropped->push_back(std::move(item));
  }
  in_flight_.clear();
  for (OutStream* stream : line_) {
    for (auto& item : stream->items) {
      if (item->end_pos_ != 0) --stream->in_flight;
      dropped->push_back(std::move(item));
    }
    stream->items.clear();
    stream->ready = false;
  }
  line_.clear();
  pieces_.clear();
  kinds_.clear();
  next_piece_ = 0;
  mid_frame_ = false;
  prepared_pos_ = written_pos_ = quiet_pos_ = 0;
  queued_meta_bytes_ = 0;
}

}  // namespace cistern::transport
