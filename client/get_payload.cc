#include "client/get_payload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault.h"

namespace cistern {

absl::Status SelectWhole(bool digests, GetChunk* chunk) {
  return SelectParts(0, 0, digests, chunk);
}

absl::Status SelectParts(uint32_t first, uint32_t count, bool digests, GetChunk* chunk) {
  const PartLayout& layout = chunk->layout;
  if (first >= layout.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts from ", first, " on of a chunk of ", layout.count));
  }
  const uint32_t last = count == 0 || count > layout.count - first ? layout.count : first + count;
  chunk->begin = layout.PartBegin(first);
  chunk->end = std::min(layout.PartBegin(last), layout.length);
  chunk->first_part = first;
  chunk->part_count = digests ? last - first : 0;
  return absl::OkStatus();
}

absl::Status SelectRange(uint64_t offset, uint64_t bytes, bool digests, GetChunk* chunk) {
  const PartLayout& layout = chunk->layout;
  if (bytes == 0 || offset >= layout.length || bytes > layout.length - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes [", offset, ", +", bytes, ") of a chunk of ", layout.length));
  }
  chunk->begin = offset;
  chunk->end = offset + bytes;
  const uint64_t first = RoundUp(offset, layout.part_bytes) / layout.part_bytes;
  const uint64_t last = chunk->end == layout.length ? layout.count : chunk->end / layout.part_bytes;
  chunk->first_part = static_cast<uint32_t>(first);
  chunk->part_count = digests && last > first ? static_cast<uint32_t>(last - first) : 0;
  return absl::OkStatus();
}

GetPayload::GetPayload(std::vector<GetChunk> chunks)
    : chunks_(std::move(chunks)), verdicts_(chunks_.size(), Verdict::kPending) {
  size_t digests = 0;
  for (const GetChunk& chunk : chunks_) {
    stream_bytes_ += chunk.stream_bytes();
    first_digest_.push_back(digests);
    digests += chunk.part_count;
  }
  digests_.resize(digests);
  if (!chunks_.empty()) landed_.memory = MemoryCursor(chunks_[0].memory);
}

iovec GetPayload::PieceAt(const Position& at, uint64_t max_bytes) {
  const GetChunk& chunk = chunks_[at.chunk];
  if (at.done < chunk.digest_bytes()) {
    auto* table = reinterpret_cast<char*>(&digests_[first_digest_[at.chunk]]);
    return {table + at.done, std::min(max_bytes, chunk.digest_bytes() - at.done)};
  }
  const uint64_t offset = chunk.begin + (at.done - chunk.digest_bytes());
  return at.memory.Peek(std::min(max_bytes, chunk.end - offset));
}

void GetPayload::Move(uint64_t bytes, Position* at) const {
  const GetChunk& chunk = chunks_[at->chunk];
  if (at->done >= chunk.digest_bytes()) at->memory.Advance(bytes);
  at->done += bytes;
  if (at->done < chunk.stream_bytes()) return;
  ++at->chunk;
  at->done = 0;
  if (at->chunk < chunks_.size()) at->memory = MemoryCursor(chunks_[at->chunk].memory);
}

void GetPayload::NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  Position at = landed_;
  while (at.chunk < chunks_.size() && max_bytes > 0 && max_pieces > 0) {
    const iovec piece = PieceAt(at, max_bytes);
    out->push_back(piece);
    Move(piece.iov_len, &at);
    max_bytes -= piece.iov_len;
    --max_pieces;
  }
}

absl::Status GetPayload::Landed(size_t bytes) {
  (void)CISTERN_FAULT("client.get.landed");
  while (bytes > 0) {
    if (landed_.chunk >= chunks_.size()) {
      return absl::InternalError("a get's payload is longer than its head said");
    }
    const GetChunk& chunk = chunks_[landed_.chunk];
    uint64_t limit = bytes;
    if (landed_.done >= chunk.digest_bytes()) {
      // Up to the next part: what is digested at once belongs to one.
      const uint64_t offset = chunk.begin + (landed_.done - chunk.digest_bytes());
      limit = std::min(limit, chunk.layout.part_bytes - offset % chunk.layout.part_bytes);
    }
    const iovec piece = PieceAt(landed_, limit);
    Digest(piece);
    const bool ends = landed_.done + piece.iov_len == chunk.stream_bytes();
    if (ends) EndChunk();
    Move(piece.iov_len, &landed_);
    bytes -= piece.iov_len;
  }
  return absl::OkStatus();
}

void GetPayload::Digest(const iovec& piece) {
  const GetChunk& chunk = chunks_[landed_.chunk];
  if (chunk.part_count == 0 || landed_.done < chunk.digest_bytes()) return;
  const uint64_t offset = chunk.begin + (landed_.done - chunk.digest_bytes());
  const uint64_t part = offset / chunk.layout.part_bytes;
  if (part < chunk.first_part || part >= uint64_t{chunk.first_part} + chunk.part_count) return;
  const uint64_t in_part = offset % chunk.layout.part_bytes;
  const uint64_t part_bytes = chunk.layout.PartBytes(static_cast<uint32_t>(part));
  PartDigest digest;
  if (piece.iov_len == part_bytes) {
    digest = DigestOf(piece.iov_base, piece.iov_len);
  } else {
    stream_.Update(piece.iov_base, piece.iov_len);
    if (in_part + piece.iov_len < part_bytes) return;
    digest = stream_.Finish();
    stream_.Reset();
  }
  if (digest != digests_[first_digest_[landed_.chunk] + (part - chunk.first_part)]) {
    verdicts_[landed_.chunk] = Verdict::kBad;
  }
}

void GetPayload::EndChunk() {
  const GetChunk& chunk = chunks_[landed_.chunk];
  Verdict& verdict = verdicts_[landed_.chunk];
  if (verdict == Verdict::kBad) return;
  uint64_t covered = 0;
  for (uint32_t i = 0; i < chunk.part_count; ++i) {
    covered += chunk.layout.PartBytes(chunk.first_part + i);
  }
  if (covered != chunk.end - chunk.begin) {
    verdict = Verdict::kUnverified;
    return;
  }
  // The root ties the parts to the chunk's name. A run of parts has no root of its own.
  if (chunk.whole() &&
      RootDigest(absl::MakeConstSpan(&digests_[first_digest_[landed_.chunk]], chunk.part_count),
                 chunk.layout.length, chunk.name) != chunk.root) {
    verdict = Verdict::kBad;
    return;
  }
  verdict = Verdict::kVerified;
}

}  // namespace cistern
