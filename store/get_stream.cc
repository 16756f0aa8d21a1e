#include "store/get_stream.h"

#include <algorithm>
#include <utility>

#include "base/fault.h"

namespace cistern::store {

GetStream::GetStream(std::vector<ChunkRef> refs, std::vector<GetPiece> pieces, bool part_major,
                     PeerLedger::Hold hold)
    : refs_(std::move(refs)), pieces_(std::move(pieces)), hold_(std::move(hold)) {
  for (const GetPiece& piece : pieces_) remaining_ += piece.stream_bytes();
  if (!part_major) return;
  std::vector<PartInterval> parts;
  parts.reserve(pieces_.size());
  for (const GetPiece& p : pieces_) {
    parts.push_back({static_cast<uint32_t>(p.begin / p.part_bytes),
                     static_cast<uint32_t>((p.end + p.part_bytes - 1) / p.part_bytes)});
  }
  order_.emplace(parts);
}

GetStream::Stretch GetStream::Next() {
  if (!order_.has_value()) {
    const GetPiece& piece = pieces_[next_ / 2];
    if (next_++ % 2 == 0) return {piece.table, piece.table_bytes};
    return {piece.payload + piece.begin, piece.end - piece.begin};
  }
  if (next_ < pieces_.size()) {
    const GetPiece& piece = pieces_[next_++];
    return {piece.table, piece.table_bytes};
  }
  PartOrder::Step step;
  order_->Next(&step);
  const GetPiece& piece = pieces_[step.chunk];
  const uint64_t begin = std::max(piece.begin, step.part * piece.part_bytes);
  const uint64_t end = std::min(piece.end, (step.part + uint64_t{1}) * piece.part_bytes);
  return {piece.payload + begin, end - begin};
}

void GetStream::NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  (void)CISTERN_FAULT("store.get.streaming");
  const uint64_t before = remaining_;
  while (max_bytes > 0 && max_pieces > 0 && remaining_ > 0) {
    while (current_.bytes == 0) current_ = Next();
    const size_t n = std::min<uint64_t>(current_.bytes, max_bytes);
    out->push_back({const_cast<char*>(current_.data), n});
    current_.data += n;
    current_.bytes -= n;
    remaining_ -= n;
    max_bytes -= n;
    --max_pieces;
  }
  hold_.Took(before - remaining_);
}

}  // namespace cistern::store
