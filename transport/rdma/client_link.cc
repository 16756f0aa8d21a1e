#include <algorithm>

#include "base/status.h"
#include "transport/rdma/rdma_link.h"

namespace cistern::transport::rdma {

void ClientLink::AnnounceSegments(absl::Span<const OutSegment> segments) {
  Record record;
  for (const OutSegment& segment : segments) {
    const auto address = reinterpret_cast<uintptr_t>(segment.data);
    if (record.bytes > 0 && record.key == segment.remote_key &&
        record.address + record.bytes == address) {
      record.bytes += segment.bytes;
      continue;
    }
    if (record.bytes > 0) AppendRecord(record);
    record = {RecordKind::kOffer, segment.bytes, segment.remote_key, address};
  }
  AppendRecord(record);
}

absl::Status ClientLink::OnNote(const Note& note) {
  switch (note.kind) {
    case NoteKind::kTaken: {
      uint64_t offered = 0;
      for (const OutSegment& segment : out_) offered += segment.bytes;
      if (note.bytes > offered) {
        return absl::InvalidArgumentError("rdma: more was taken than was offered");
      }
      AdvanceQuiet(note.bytes);
      return absl::OkStatus();
    }
    case NoteKind::kLanded:
      if (note.bytes > awaited_bytes()) {
        return absl::InvalidArgumentError("rdma: more has landed than there are places");
      }
      Arrive(note.bytes);
      return absl::OkStatus();
    case NoteKind::kTarget:
      break;
  }
  return absl::InvalidArgumentError("rdma: a note of a kind that stores do not send");
}

absl::Status ClientLink::OnOffer(const Record&) { return absl::OkStatus(); }

void ClientLink::OnPassedOver(uint64_t bytes) {
  while (bytes > 0) {
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
    AddNote({.kind = NoteKind::kTaken, .bytes = n});
    bytes -= n;
  }
}

absl::StatusOr<uint64_t> ClientLink::Place(absl::Span<const iovec> to) {
  if (!failure().ok()) return failure();
  uint64_t placed = 0;
  starved_ = false;
  Note target = {.kind = NoteKind::kTarget};
  for (iovec piece : to) {
    while (piece.iov_len > 0 && !starved_) {
      size_t bytes = std::min<size_t>(piece.iov_len, kTransferBytes);
      uint8_t* const memory = static_cast<uint8_t*>(piece.iov_base);
      uint8_t* landing = memory;
      MemoryKeys keys;
      if (bytes >= kLeastDirectBytes &&
          endpoint_->device().memory.Find(memory, MemoryRights::kRemoteWrite, &keys)) {
        bytes = static_cast<size_t>(std::min<uint64_t>(bytes, keys.bytes_left));
      } else {
        CISTERN_ASSIGN_OR_RETURN(landing, in_ring_.Take(bytes, &bytes));
        keys.remote_key = in_ring_.remote_key();
        if (bytes == 0) {
          starved_ = true;
          break;
        }
      }
      const auto address = reinterpret_cast<uintptr_t>(landing);
      if (target.bytes > 0 && target.key == keys.remote_key &&
          target.address + target.bytes == address) {
        target.bytes += static_cast<uint32_t>(bytes);
      } else {
        if (target.bytes > 0) AddNote(target);
        target = {NoteKind::kTarget, static_cast<uint32_t>(bytes), keys.remote_key, address};
      }
      AddPlace({.to = memory,
                .bounce = landing == memory ? nullptr : landing,
                .bytes = static_cast<uint32_t>(bytes),
                .wanted = true});
      placed += bytes;
      piece = {memory + bytes, piece.iov_len - bytes};
    }
  }
  if (target.bytes > 0) AddNote(target);
  // The offers of a store have no address: only their sum counts.
  for (uint64_t left = placed; left > 0;) {
    Offer& offer = offers_.front();
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(left, offer.bytes));
    offer.bytes -= n;
    left -= n;
    if (offer.bytes == 0) offers_.pop_front();
  }
  return placed;
}

}  // namespace cistern::transport::rdma
