#include "client/put_payload.h"

#include <algorithm>
#include <utility>

#include "base/fault.h"

namespace cistern {

PutPayload::PutPayload(std::vector<PutChunk> chunks, bool digest)
    : chunks_(std::move(chunks)), digest_(digest) {
  size_t parts = 0;
  for (const PutChunk& chunk : chunks_) {
    remaining_ += StreamBytes(chunk, digest_);
    parts += chunk.layout.count;
  }
  if (digest_) digests_.resize(parts);
  if (!chunks_.empty()) BeginChunk();
}

void PutPayload::BeginChunk() {
  sent_ = 0;
  cursor_ = MemoryCursor(chunks_[chunk_].memory);
  part_ = 0;
  in_part_ = 0;
}

void PutPayload::Digest(const iovec& piece) {
  const PartLayout& layout = chunks_[chunk_].layout;
  const uint64_t part_bytes = layout.PartBytes(part_);
  PartDigest& digest = digests_[first_digest_ + part_];
  if (piece.iov_len == part_bytes) {  // The whole part at once needs no stream.
    digest = DigestOf(piece.iov_base, piece.iov_len);
  } else {
    stream_.Update(piece.iov_base, piece.iov_len);
    if (in_part_ + piece.iov_len < part_bytes) {
      in_part_ += piece.iov_len;
      return;
    }
    digest = stream_.Finish();
    stream_.Reset();
  }
  in_part_ = 0;
  ++part_;
}

void PutPayload::NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  (void)CISTERN_FAULT("client.put.sending");
  if (digest_) max_bytes = std::min(max_bytes, kPieceBytes);
  while (remaining_ > 0 && max_bytes > 0 && max_pieces > 0) {
    const PartLayout& layout = chunks_[chunk_].layout;
    iovec piece;
    if (sent_ < layout.length) {
      // A piece never crosses a part, so that each is digested by one call.
      const uint64_t limit =
          digest_ ? std::min<uint64_t>(max_bytes, layout.PartBytes(part_) - in_part_) : max_bytes;
      piece = cursor_.Peek(limit);
      cursor_.Advance(piece.iov_len);
      if (digest_) Digest(piece);
    } else {
      const uint64_t offset = sent_ - layout.length;
      auto* table = reinterpret_cast<char*>(&digests_[first_digest_]);
      piece = {table + offset,
               std::min<uint64_t>(max_bytes, sizeof(PartDigest) * layout.count - offset)};
    }
    out->push_back(piece);
    sent_ += piece.iov_len;
    remaining_ -= piece.iov_len;
    max_bytes -= piece.iov_len;
    --max_pieces;
    if (sent_ == StreamBytes(chunks_[chunk_], digest_) && remaining_ > 0) {
      if (digest_) first_digest_ += layout.count;
      ++chunk_;
      BeginChunk();
    }
  }
}

}  // namespace cistern
