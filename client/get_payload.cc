#include "client/get_payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fault.h"
#include "base/part_order.h"

namespace cistern {
namespace {

constexpr size_t kMaxScratchBytes = 32 << 10;

// The parts wholly inside [begin, end).
void FindWholeParts(bool digests, GetChunk* chunk) {
  const PartLayout& layout = chunk->layout;
  const uint64_t first = RoundUp(chunk->begin, layout.part_bytes) / layout.part_bytes;
  const uint64_t last = chunk->end == layout.length ? layout.count : chunk->end / layout.part_bytes;
  chunk->first_part = static_cast<uint32_t>(first);
  chunk->part_count = last > first ? static_cast<uint32_t>(last - first) : 0;
  chunk->table = digests && chunk->part_count > 0;
}

}  // namespace

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
  FindWholeParts(digests, chunk);
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
  FindWholeParts(digests, chunk);
  return absl::OkStatus();
}

GetPayload::GetPayload(std::vector<GetChunk> chunks, GetOrder order, Listener* listener)
    : chunks_(std::move(chunks)),
      order_(order),
      listener_(listener),
      verdicts_(chunks_.size(), Verdict::kPending) {
  const auto n = static_cast<uint32_t>(chunks_.size());
  const bool by_part = order_ == GetOrder::kByPart;
  first_digest_.reserve(n);
  runs_.reserve(2 * size_t{n});
  size_t kept = 0;
  uint64_t passing_bytes = 0;
  for (uint32_t c = 0; c < n; ++c) {
    const GetChunk& chunk = chunks_[c];
    stream_bytes_ += chunk.stream_bytes();
    first_digest_.push_back(kept);
    const size_t keep = chunk.table && chunk.check ? chunk.part_count : 0;
    kept += keep;
    passing_bytes += chunk.table_bytes() - keep * sizeof(PartDigest);
    if (chunk.table) runs_.push_back({c, Run::kTable});
    if (!by_part) runs_.push_back({c, Run::kAll});
  }
  digests_.resize(kept);
  if (passing_bytes > 0) {
    scratch_bytes_ = static_cast<size_t>(std::min<uint64_t>(passing_bytes, kMaxScratchBytes));
    scratch_ = std::make_unique_for_overwrite<char[]>(scratch_bytes_);
  }
  if (!by_part) return;
  std::vector<PartInterval> parts;
  parts.reserve(n);
  places_.resize(n);
  for (uint32_t c = 0; c < n; ++c) {
    parts.push_back({chunks_[c].touched_first(), chunks_[c].touched_end()});
  }
  // No more of them than there are parts in the caller's memory.
  PartOrder order_of_parts(parts);
  for (PartOrder::Step step; order_of_parts.Next(&step);) runs_.push_back({step.chunk, step.part});
}

GetPayload::Range GetPayload::RangeOf(const Run& run) const {
  const GetChunk& chunk = chunks_[run.chunk];
  if (run.part == Run::kTable) return {0, chunk.table_bytes()};
  if (run.part == Run::kAll) return {chunk.begin, chunk.end};
  const uint64_t begin = chunk.layout.PartBegin(run.part);
  return {std::max(chunk.begin, begin), std::min(chunk.end, begin + chunk.layout.part_bytes)};
}

GetPayload::Place& GetPayload::PlaceOf(uint32_t chunk, Place* single) {
  Place& place = order_ == GetOrder::kByPart ? places_[chunk] : *single;
  if (place.chunk != chunk) {
    place.chunk = chunk;
    place.cursor = MemoryCursor(chunks_[chunk].memory, chunks_[chunk].memory_skip);
    place.round = 0;
  }
  return place;
}

iovec GetPayload::TableMemory(uint32_t chunk, uint64_t done, size_t scratch_at, bool* scratch) {
  const GetChunk& c = chunks_[chunk];
  const uint64_t all = c.table_bytes();
  const uint64_t kept_begin = c.check ? sizeof(PartDigest) * c.first_part : all;
  const uint64_t kept_end = c.check ? kept_begin + sizeof(PartDigest) * c.part_count : all;
  if (done >= kept_begin && done < kept_end) {
    *scratch = false;
    auto* kept = reinterpret_cast<char*>(digests_.data() + first_digest_[chunk]);
    return {kept + (done - kept_begin), kept_end - done};
  }
  *scratch = true;
  const uint64_t together = (done < kept_begin ? kept_begin : all) - done;
  return {scratch_.get() + scratch_at,
          static_cast<size_t>(std::min<uint64_t>(together, scratch_bytes_ - scratch_at))};
}

void GetPayload::NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  Position at = landed_;
  ++round_;
  ahead_place_ = place_;
  scratch_landed_ = 0;
  size_t scratch_given = 0;
  while (at.run < runs_.size() && max_bytes > 0 && max_pieces > 0) {
    const Run& run = runs_[at.run];
    const uint64_t left = RangeOf(run).bytes() - at.done;
    iovec piece;
    if (run.part == Run::kTable) {
      bool scratch = false;
      piece = TableMemory(run.chunk, at.done, scratch_given, &scratch);
      if (piece.iov_len == 0) return;  // When this has landed there is room again.
      piece.iov_len = std::min(piece.iov_len, max_bytes);
      if (scratch) scratch_given += piece.iov_len;
    } else {
      Place& place = PlaceOf(run.chunk, &ahead_place_);
      if (std::exchange(place.round, round_) != round_) place.ahead = place.cursor;
      piece = place.ahead.Peek(std::min<uint64_t>(left, max_bytes));
      place.ahead.Advance(piece.iov_len);
    }
    out->push_back(piece);
    at.done += piece.iov_len;
    if (piece.iov_len == left) at = {at.run + 1, 0};
    max_bytes -= piece.iov_len;
    --max_pieces;
  }
}

absl::Status GetPayload::Landed(size_t bytes) {
  (void)CISTERN_FAULT("client.get.landed");
  while (bytes > 0) {
    if (landed_.run >= runs_.size()) {
      return absl::InternalError("a get's payload is longer than its head said");
    }
    const Run run = runs_[landed_.run];
    const size_t n =
        run.part == Run::kTable ? TableLanded(run, bytes) : BytesLanded(run, bytes, nullptr);
    if (n == 0) return absl::InternalError("more of a get's payload landed than it had room for");
    bytes -= n;
    Passed(run, n);
  }
  return absl::OkStatus();
}

absl::Status GetPayload::TakeFrom(const char* from, size_t bytes, size_t* taken) {
  (void)CISTERN_FAULT("client.get.landed");
  *taken = 0;
  while (bytes > 0 && landed_.run < runs_.size()) {
    const Run run = runs_[landed_.run];
    size_t n = 0;
    if (run.part == Run::kTable) {
      scratch_landed_ = 0;
      bool scratch = false;
      const iovec memory = TableMemory(run.chunk, landed_.done, 0, &scratch);
      n = std::min(memory.iov_len, bytes);
      std::memcpy(memory.iov_base, from, n);
      TableLanded(run, n);
    } else {
      n = BytesLanded(run, bytes, from);
    }
    if (n == 0) return absl::InternalError("more of a get's payload came than it had room for");
    from += n;
    bytes -= n;
    *taken += n;
    Passed(run, n);
  }
  return absl::OkStatus();
}

void GetPayload::Passed(const Run& run, size_t bytes) {
  landed_.done += bytes;
  if (landed_.done != RangeOf(run).bytes()) return;
  EndRun(run);
  landed_ = {landed_.run + 1, 0};
}

size_t GetPayload::TableLanded(const Run& run, size_t bytes) {
  const GetChunk& chunk = chunks_[run.chunk];
  bool scratch = false;
  const iovec memory = TableMemory(run.chunk, landed_.done, scratch_landed_, &scratch);
  const size_t n = std::min(memory.iov_len, bytes);
  if (scratch) scratch_landed_ += n;
  if (chunk.check && chunk.part_count != chunk.layout.count) {
    if (!table_.has_value()) table_.emplace();
    if (landed_.done == 0) table_->Reset();
    table_->Update(memory.iov_base, n);
  }
  return n;
}

size_t GetPayload::BytesLanded(const Run& run, size_t bytes, const char* from) {
  const GetChunk& chunk = chunks_[run.chunk];
  const Range range = RangeOf(run);
  const uint64_t offset = range.begin + landed_.done;
  // Up to the next part: what is digested at once belongs to one.
  const uint64_t limit = std::min({uint64_t{bytes}, range.end - offset,
                                   chunk.layout.part_bytes - offset % chunk.layout.part_bytes});
  MemoryCursor& cursor = PlaceOf(run.chunk, &place_).cursor;
  const iovec piece = cursor.Peek(limit);
  Digest(run.chunk, offset, piece, from);
  cursor.Advance(piece.iov_len);
  return piece.iov_len;
}

void GetPayload::Digest(uint32_t index, uint64_t offset, const iovec& piece, const char* from) {
  const GetChunk& chunk = chunks_[index];
  const uint64_t part = offset / chunk.layout.part_bytes;
  if (!chunk.table || !chunk.check || part < chunk.first_part ||
      part >= uint64_t{chunk.first_part} + chunk.part_count) {
    if (from != nullptr) std::memcpy(piece.iov_base, from, piece.iov_len);
    return;
  }
  const uint64_t in_part = offset % chunk.layout.part_bytes;
  const uint64_t part_bytes = chunk.layout.PartBytes(static_cast<uint32_t>(part));
  PartDigest digest;
  if (piece.iov_len == part_bytes && from == nullptr) {
    digest = DigestOf(piece.iov_base, piece.iov_len);
  } else {
    if (from != nullptr) {
      stream_.CopyUpdate(piece.iov_base, from, piece.iov_len);
    } else {
      stream_.Update(piece.iov_base, piece.iov_len);
    }
    if (in_part + piece.iov_len < part_bytes) return;
    digest = stream_.Finish();
    stream_.Reset();
  }
  if (digest != digests_[first_digest_[index] + (part - chunk.first_part)]) Condemn(index);
}

void GetPayload::EndRun(const Run& run) {
  if (run.part == Run::kTable) return CheckRoot(run.chunk);
  if (run.part == Run::kAll) return EndChunk(run.chunk);
  if (run.part + 1 == chunks_[run.chunk].touched_end()) EndChunk(run.chunk);
  if (verdicts_[run.chunk] != Verdict::kBad && listener_ != nullptr) {
    listener_->OnParts(run.chunk, run.part + 1);
  }
}

void GetPayload::CheckRoot(uint32_t index) {
  const GetChunk& chunk = chunks_[index];
  if (!chunk.check) return;
  const bool kept = chunk.part_count == chunk.layout.count;
  const uint64_t root = kept ? RootDigest(absl::MakeConstSpan(digests_).subspan(
                                              first_digest_[index], chunk.part_count),
                                          chunk.layout.length, chunk.name)
                             : RootDigest(&*table_, chunk.layout.length, chunk.name);
  if (root != chunk.root) Condemn(index);
}

void GetPayload::EndChunk(uint32_t index) {
  if (verdicts_[index] == Verdict::kBad) return;
  verdicts_[index] = chunks_[index].verifiable() ? Verdict::kVerified : Verdict::kUnverified;
}

void GetPayload::Condemn(uint32_t index) {
  if (std::exchange(verdicts_[index], Verdict::kBad) == Verdict::kBad) return;
  if (listener_ != nullptr) listener_->OnBad(index);
}

}  // namespace cistern
