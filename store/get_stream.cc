#include "store/get_stream.h"

#include <algorithm>
#include <utility>

#include "base/fault.h"

namespace cistern::store {

GetStream::GetStream(std::vector<ChunkRef> refs, std::vector<GetPiece> pieces,
                     PeerLedger::Hold hold)
    : refs_(std::move(refs)), pieces_(std::move(pieces)), hold_(std::move(hold)) {
  for (const GetPiece& piece : pieces_) remaining_ += piece.digest_bytes + piece.byte_count;
}

void GetStream::NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  (void)CISTERN_FAULT("store.get.streaming");
  const uint64_t before = remaining_;
  while (max_bytes > 0 && max_pieces > 0 && current_ < pieces_.size()) {
    const GetPiece& piece = pieces_[current_];
    const bool in_digests = offset_ < piece.digest_bytes;
    const uint64_t at = in_digests ? offset_ : offset_ - piece.digest_bytes;
    const char* base = (in_digests ? piece.digests : piece.bytes) + at;
    const uint64_t left = (in_digests ? piece.digest_bytes : piece.byte_count) - at;
    const size_t n = std::min<uint64_t>(left, max_bytes);
    if (n > 0) {
      out->push_back({const_cast<char*>(base), n});
      --max_pieces;
      max_bytes -= n;
      offset_ += n;
      remaining_ -= n;
    }
    if (offset_ == piece.digest_bytes + piece.byte_count) {
      ++current_;
      offset_ = 0;
    }
  }
  hold_.Took(before - remaining_);
}

}  // namespace cistern::store
