#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/time/time.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/shm/shm_link.h"

namespace cistern::transport {
namespace {

// Takes `amount` of what is left, or nothing.
bool Charge(std::atomic<int64_t>& left, int64_t amount) {
  if (left.fetch_sub(amount, std::memory_order_relaxed) >= amount) return true;
  left.fetch_add(amount, std::memory_order_relaxed);
  return false;
}

}  // namespace

ShmServerLink::~ShmServerLink() {
  budget_->mapped_bytes_left.fetch_add(static_cast<int64_t>(charged_bytes_));
  budget_->lends_left.fetch_add(max_lends_);
}

absl::Status ShmServerLink::OnServerReady(bool small_lane, wire::AuthOk* ok) {
  if (small_lane) return absl::OkStatus();
  const uint64_t bytes = RingMemoryBytes(ring_bytes_);
  if (!Charge(budget_->mapped_bytes_left, static_cast<int64_t>(bytes))) {
    CISTERN_LOG_EVERY(Warning, absl::Minutes(1),
                      "shared memory: the rings of other connections use up shm.max_mapped; "
                      "payload of this one goes through its socket");
    return absl::OkStatus();
  }
  absl::StatusOr<RingMemory> made = MakeRing();
  if (!made.ok()) {
    budget_->mapped_bytes_left.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    CISTERN_LOG_EVERY(Warning, absl::Minutes(1), "shared memory: no ring for a connection (",
                      made.status().message(), "); its payload goes through its socket");
    return absl::OkStatus();
  }
  charged_bytes_ = bytes;
  RingMemory memory = *std::move(made);
  // Without it puts of AllocateBuffer's memory go by the ring, too.
  if (Charge(budget_->lends_left, kMaxLends)) max_lends_ = kMaxLends;
  borrowed_.emplace(max_lends_, budget_->lent);
  RingPage* const page = memory.page();
  char* const to_store = memory.to_store();
  char* const to_client = memory.to_client();
  UseRings(std::move(memory), &page->to_client, to_client, &page->to_store, to_store);
  AttachFd(ring_fd_.get());
  AttachFd(event_fd_.get());
  ok->mutable_shm()->set_ring_bytes(ring_bytes_);
  ok->mutable_shm()->set_max_lends(max_lends_);
  return absl::OkStatus();
}

absl::StatusOr<RingMemory> ShmServerLink::MakeRing() {
  if (CISTERN_FAULT("shm.ring")) return absl::ResourceExhaustedError("fault");
  OwnedFd event_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_fd) return ErrnoStatus(errno, "eventfd");
  CISTERN_ASSIGN_OR_RETURN(RingMemory memory, RingMemory::Create(ring_bytes_, &ring_fd_));
  event_fd_ = std::move(event_fd);
  return memory;
}

void ShmServerLink::AddOwnRecords() {
  if (!attached_any()) ring_fd_ = OwnedFd();  // handed over: the mapping is enough
  if (!room_due_) return;
  room_due_ = false;
  AddRecord({.kind = RecordKind::kRoom});
}

absl::Status ShmServerLink::OnOtherRecord(const PieceRecord& record, uint64_t* piece_bytes) {
  switch (record.kind) {
    case RecordKind::kLent:
      CISTERN_RETURN_IF_ERROR(borrowed_->Check(record.buffer, record.position, record.bytes));
      return AnnouncePiece(record.bytes, /*lent=*/true, record.buffer, record.position,
                           piece_bytes);
    case RecordKind::kLend: {
      if (received_fds_.empty()) {
        return absl::InvalidArgumentError("shm: memory was lent without its descriptor");
      }
      OwnedFd fd = std::move(received_fds_.front());
      received_fds_.erase(received_fds_.begin());
      return borrowed_->Borrow(record.buffer, record.position, std::move(fd));
    }
    case RecordKind::kUnlend:
      return borrowed_->Return(record.buffer);
    default:
      return absl::InvalidArgumentError("shm: a record of a kind that clients do not send");
  }
}

absl::Status ShmServerLink::ReadLent(uint64_t offset, absl::Span<const iovec> to) {
  return borrowed_->Read(lent_buffer_, offset, to);
}

absl::Span<const char> ShmServerLink::PeekLent(uint64_t offset, uint64_t bytes) {
  return borrowed_->Peek(lent_buffer_, offset, bytes);
}

}  // namespace cistern::transport
