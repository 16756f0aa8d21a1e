#include <algorithm>
#include <vector>

#include "base/status.h"
#include "transport/rdma/rdma_link.h"

namespace cistern::transport::rdma {

// --- to the client ---

void StoreLink::AnnounceSegments(absl::Span<const OutSegment> segments) {
  Record record = {.kind = RecordKind::kOffer};
  for (const OutSegment& segment : segments) {
    record.bytes += segment.bytes;
    unwritten_.push_back(
        {reinterpret_cast<uintptr_t>(segment.data), segment.bytes, segment.local_key});
  }
  unanswered_ += record.bytes;
  AppendRecord(record);
}

absl::Status StoreLink::OnNote(const Note& note) {
  if (note.kind == NoteKind::kLanded) {
    return absl::InvalidArgumentError("rdma: a note of a kind that clients do not send");
  }
  // Whatever the device would let us write: never more than was offered.
  if (note.bytes > unanswered_) {
    return absl::InvalidArgumentError("rdma: places for more than was offered");
  }
  if (targets_.size() >= kMostOffers) {
    return absl::InvalidArgumentError("rdma: places that are too many and too small");
  }
  unanswered_ -= note.bytes;
  targets_.push_back({note.address, note.key, note.bytes, note.kind == NoteKind::kTarget});
  return absl::OkStatus();
}

// The next bytes to write, at most `bytes`, to pieces_. Returns how many.
uint32_t StoreLink::Gather(uint64_t bytes) {
  pieces_.clear();
  uint32_t sum = 0;
  const size_t most = endpoint_->device().max_pieces;
  while (sum < bytes && !unwritten_.empty()) {
    ibv_sge& next = unwritten_.front();
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes - sum, next.length));
    ibv_sge* const last = pieces_.empty() ? nullptr : &pieces_.back();
    if (last != nullptr && last->lkey == next.lkey && last->addr + last->length == next.addr) {
      last->length += n;
    } else if (pieces_.size() == most) {
      break;
    } else {
      pieces_.push_back({next.addr, n, next.lkey});
    }
    sum += n;
    next.addr += n;
    next.length -= n;
    if (next.length == 0) unwritten_.pop_front();
  }
  return sum;
}

void StoreLink::Pump() {
  while (!targets_.empty()) {
    Target& target = targets_.front();
    if (!target.wanted) {
      for (uint64_t left = target.bytes; left > 0;) left -= Gather(left);
      if (!passed_.empty() && passed_.back().done) {
        passed_.back().bytes += target.bytes;
      } else {
        passed_.push_back({target.bytes, true});
      }
      targets_.pop_front();
      PassQuiet();
      continue;
    }
    if (!endpoint_->has_room()) break;
    const uint32_t bytes = Gather(std::min<uint64_t>(target.bytes, kTransferBytes));
    endpoint_->QueueTransfer(OpKind::kWrite, pieces_, target.address, target.key, bytes);
    passed_.push_back({bytes, false});
    target.address += bytes;
    target.bytes -= bytes;
    untold_ += bytes;
    if (target.bytes == 0) targets_.pop_front();
    if (untold_ >= kTransferBytes) TellLanded();
  }
  TellLanded();
}

// By a message behind the writes that it tells of, on the same queue pair.
void StoreLink::TellLanded() {
  if (untold_ == 0) return;
  AddNote({.kind = NoteKind::kLanded, .bytes = static_cast<uint32_t>(untold_)});
  untold_ = 0;
  CloseMessage();
  SendNotes();
}

void StoreLink::PassQuiet() {
  while (!passed_.empty() && passed_.front().done) {
    AdvanceQuiet(passed_.front().bytes);
    passed_.pop_front();
  }
}

void StoreLink::OnOpDone(OpKind kind, uint64_t bytes) {
  if (kind == OpKind::kRead) {
    Arrive(bytes);
    AddNote({.kind = NoteKind::kTaken, .bytes = static_cast<uint32_t>(bytes)});
    return;
  }
  for (Passed& passed : passed_) {
    if (passed.done) continue;
    passed.done = true;
    break;
  }
  PassQuiet();
}

// --- from the client ---

absl::Status StoreLink::OnOffer(const Record& record) {
  if (record.address + record.bytes < record.address) {
    return absl::InvalidArgumentError("rdma: an offer beyond the end of memory");
  }
  return absl::OkStatus();
}

void StoreLink::OnUnwantedReached(uint64_t bytes) {
  AddNote({.kind = NoteKind::kTaken, .bytes = static_cast<uint32_t>(bytes)});
}

absl::StatusOr<uint64_t> StoreLink::Place(absl::Span<const iovec> to) {
  if (!failure().ok()) return failure();
  std::vector<iovec> left(to.begin(), to.end());
  absl::Span<iovec> rest = absl::MakeSpan(left);
  uint64_t placed = 0;
  starved_ = false;
  while (!rest.empty()) {
    CISTERN_ASSIGN_OR_RETURN(const uint64_t bytes, PlaceOne(&rest));
    placed += bytes;
    starved_ = bytes == 0;
    if (starved_) break;
  }
  return placed;
}

absl::StatusOr<uint64_t> StoreLink::PlaceOne(absl::Span<iovec>* to) {
  if (!endpoint_->has_room()) return uint64_t{0};
  Offer& offer = offers_.front();
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(offer.bytes, kTransferBytes));
  uint32_t sum = 0;
  pieces_.clear();
  while (sum < most && !to->empty()) {
    iovec& piece = to->front();
    size_t bytes = std::min<size_t>(piece.iov_len, most - sum);
    auto* const memory = static_cast<uint8_t*>(piece.iov_base);
    uint8_t* landing = memory;
    MemoryKeys keys;
    if (bytes >= kLeastDirectBytes &&
        endpoint_->device().memory.Find(memory, MemoryRights::kLocal, &keys)) {
      bytes = static_cast<size_t>(std::min<uint64_t>(bytes, keys.bytes_left));
    } else {
      if (pieces_.size() == endpoint_->device().max_pieces) break;
      CISTERN_ASSIGN_OR_RETURN(landing, in_ring_.Take(bytes, &bytes));
      if (bytes == 0) break;
      keys.local_key = in_ring_.local_key();
    }
    const auto address = reinterpret_cast<uintptr_t>(landing);
    ibv_sge* const last = pieces_.empty() ? nullptr : &pieces_.back();
    if (last != nullptr && last->lkey == keys.local_key && last->addr + last->length == address) {
      last->length += static_cast<uint32_t>(bytes);
    } else if (pieces_.size() == endpoint_->device().max_pieces) {
      break;  // of registered memory: nothing was taken for it
    } else {
      pieces_.push_back({address, static_cast<uint32_t>(bytes), keys.local_key});
    }
    AddPlace({.to = memory,
              .bounce = landing == memory ? nullptr : landing,
              .bytes = static_cast<uint32_t>(bytes),
              .wanted = true});
    sum += static_cast<uint32_t>(bytes);
    piece = {memory + bytes, piece.iov_len - bytes};
    if (piece.iov_len == 0) to->remove_prefix(1);
  }
  if (sum == 0) return uint64_t{0};
  endpoint_->QueueTransfer(OpKind::kRead, pieces_, offer.address, offer.key, sum);
  offer.address += sum;
  offer.bytes -= sum;
  if (offer.bytes == 0) offers_.pop_front();
  return uint64_t{sum};
}

}  // namespace cistern::transport::rdma
