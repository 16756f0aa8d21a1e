#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "transport/shm/shm_link.h"

namespace cistern::transport {

ShmClientLink::ShmClientLink(int socket, std::shared_ptr<LentMemory> lent,
                             std::function<void()> write_soon)
    : ShmLink(socket), lent_(std::move(lent)) {
  if (lent_ != nullptr) listener_ = lent_->Listen(std::move(write_soon));
}

ShmClientLink::~ShmClientLink() {
  if (lent_ != nullptr) lent_->Unlisten(listener_);
}

absl::Status ShmClientLink::OnClientReady(const wire::AuthOk& ok) {
  if (!ok.has_shm()) return absl::OkStatus();  // all of it is in line
  // The store's two descriptors came with this frame or before it.
  if (received_fds_.size() != 2) {
    return absl::InvalidArgumentError("shm: the store did not hand over a ring");
  }
  CISTERN_ASSIGN_OR_RETURN(RingMemory memory,
                           RingMemory::Adopt(received_fds_[0], ok.shm().ring_bytes()));
  event_fd_ = std::move(received_fds_[1]);
  received_fds_.clear();
  RingPage* const page = memory.page();
  char* const to_store = memory.to_store();
  char* const to_client = memory.to_client();
  UseRings(std::move(memory), &page->to_store, to_store, &page->to_client, to_client);
  if (lent_ != nullptr) {
    lends_.resize(std::min(ok.shm().max_lends(), ShmServerLink::kMaxLends));
  }
  return absl::OkStatus();
}

void ShmClientLink::WakePeer() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, the store has been woken more than often enough.
  [[maybe_unused]] const ssize_t n = write(event_fd_.get(), &one, sizeof(one));
}

absl::Status ShmClientLink::OnOtherRecord(const PieceRecord& record, uint64_t*) {
  if (record.kind != RecordKind::kRoom) {
    return absl::InvalidArgumentError("shm: a record of a kind that stores do not send");
  }
  Unblock();
  return absl::OkStatus();
}

// --- lending ---

bool ShmClientLink::UnlendsDue() const {
  return lent_count_ > 0 && lent_->version() != seen_version_;
}

void ShmClientLink::AddOwnRecords() {
  if (lent_ == nullptr || lends_.empty() || lent_->version() == seen_version_) return;
  // In this order: a change in between is seen the next time.
  const uint64_t version = lent_->version();
  table_ = lent_->table();
  for (size_t i = 0; i < lends_.size(); ++i) {
    if (lends_[i].region == nullptr || table_->Has(lends_[i].region->id)) continue;
    AddRecord({.kind = RecordKind::kUnlend, .buffer = static_cast<uint16_t>(i)});
    lends_[i].region = nullptr;
    --lent_count_;
  }
  seen_version_ = version;
}

bool ShmClientLink::TryLend(const void* data, uint64_t bytes, PieceRecord* record, bool* stop) {
  if (bytes < kLeastLentBytes || table_ == nullptr) return false;
  const LentMemory::Region* region = table_->Find(data, bytes);
  if (region == nullptr) return false;
  size_t number = lends_.size();
  for (size_t i = 0; i < lends_.size(); ++i) {
    if (lends_[i].region != nullptr && lends_[i].region->id == region->id) {
      number = i;
      break;
    }
    if (lends_[i].region == nullptr && number == lends_.size()) number = i;
  }
  if (number == lends_.size()) return false;  // as many are lent as may be
  if (lends_[number].region == nullptr) {
    // One descriptor a message.
    if (attached_any()) {
      *stop = true;
      return false;
    }
    for (const auto& shared : table_->regions) {
      if (shared.get() == region) lends_[number].region = shared;
    }
    ++lent_count_;
    AttachFd(region->fd.get());
    AddRecord({.kind = RecordKind::kLend,
               .buffer = static_cast<uint16_t>(number),
               .position = region->bytes});
  }
  record->kind = RecordKind::kLent;
  record->buffer = static_cast<uint16_t>(number);
  record->position = reinterpret_cast<uintptr_t>(data) - region->begin;
  return true;
}

}  // namespace cistern::transport
