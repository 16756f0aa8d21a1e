#include "store/put_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fault.h"
#include "base/status.h"

namespace cistern::store {
namespace {

constexpr size_t kScratchBytes = 64 << 10;

}  // namespace

PutStream::PutStream(std::vector<PutStreamItem> items, bool digests)
    : items_(std::move(items)), digests_(digests) {
  for (const PutStreamItem& item : items_) {
    total_bytes_ += ItemBytes(item);
    if (item.slot == nullptr && scratch_.empty()) scratch_.resize(kScratchBytes);
  }
}

uint64_t PutStream::ItemBytes(const PutStreamItem& item) const {
  return item.layout.length + (digests_ ? item.layout.count * sizeof(PartDigest) : 0);
}

iovec PutStream::MemoryAt(PutStreamItem& item, uint64_t offset) {
  if (item.slot == nullptr) {
    return {scratch_.data(), std::min<uint64_t>(scratch_.size(), ItemBytes(item) - offset)};
  }
  if (offset < item.layout.length) {
    return {item.slot->payload().data() + offset, item.layout.length - offset};
  }
  const uint64_t at = offset - item.layout.length;
  char* table = reinterpret_cast<char*>(item.slot->part_table().data());
  return {table + at, item.layout.count * sizeof(PartDigest) - at};
}

void PutStream::NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) {
  size_t item = current_;
  uint64_t offset = offset_;
  while (max_bytes > 0 && max_pieces > 0 && item < items_.size()) {
    iovec piece = MemoryAt(items_[item], offset);
    piece.iov_len = std::min(piece.iov_len, max_bytes);
    out->push_back(piece);
    max_bytes -= piece.iov_len;
    --max_pieces;
    offset += piece.iov_len;
    if (offset == ItemBytes(items_[item])) {
      ++item;
      offset = 0;
    }
  }
}

absl::Status PutStream::Landed(size_t bytes) {
  (void)CISTERN_FAULT("store.put.receiving");
  while (bytes > 0) {
    CISTERN_CHECK(current_ < items_.size());
    PutStreamItem& item = items_[current_];
    const iovec memory = MemoryAt(item, offset_);
    const size_t n = std::min(bytes, memory.iov_len);
    if (item.slot != nullptr && digests_ && offset_ < item.layout.length) {
      if (offset_ == 0) digester_.emplace(item.layout);
      digester_->Update(memory.iov_base, n);
    }
    offset_ += n;
    bytes -= n;
    if (offset_ == ItemBytes(item)) FinishItem();
  }
  return absl::OkStatus();
}

absl::Status PutStream::TakeFrom(const char* from, size_t bytes, size_t* taken) {
  (void)CISTERN_FAULT("store.put.receiving");
  *taken = 0;
  while (bytes > 0 && current_ < items_.size()) {
    PutStreamItem& item = items_[current_];
    const iovec memory = MemoryAt(item, offset_);
    const size_t n = std::min(bytes, memory.iov_len);
    if (item.slot != nullptr && digests_ && offset_ < item.layout.length) {
      if (offset_ == 0) digester_.emplace(item.layout);
      digester_->CopyUpdate(memory.iov_base, from, n);
    } else if (item.slot != nullptr) {
      std::memcpy(memory.iov_base, from, n);
    }
    offset_ += n;
    from += n;
    bytes -= n;
    *taken += n;
    if (offset_ == ItemBytes(item)) FinishItem();
  }
  return absl::OkStatus();
}

void PutStream::FinishItem() {
  PutStreamItem& item = items_[current_];
  if (item.slot != nullptr) {
    bool good = true;
    if (digests_) {
      const absl::Span<const PartDigest> computed = digester_->parts();
      const absl::Span<const PartDigest> told = std::as_const(*item.slot).part_table();
      good = std::equal(computed.begin(), computed.end(), told.begin(), told.end());
    }
    (good ? item.good : item.bad) = true;
  }
  ++current_;
  offset_ = 0;
}

}  // namespace cistern::store
