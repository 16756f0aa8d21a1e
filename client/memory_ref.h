// A chunk's place in the caller's memory, checked, and a cursor that walks it.
#ifndef CISTERN_CLIENT_MEMORY_REF_H_
#define CISTERN_CLIENT_MEMORY_REF_H_

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>

#include "client/client.h"

namespace cistern {

// Spans or a layout's unit, known to lie in registered memory. A value of a few words: the pieces
// of a layout are worked out when they are walked, never listed. Borrows the caller's span array
// or the registered layout (both outlive the call).
class MemoryRef {
 public:
  MemoryRef() = default;
  MemoryRef(absl::Span<const Span> spans, uint64_t bytes)
      : spans_(spans.data()), count_(static_cast<uint32_t>(spans.size())), bytes_(bytes) {}
  MemoryRef(const Layout* layout, uint32_t unit)
      : layout_(layout),
        count_(static_cast<uint32_t>(layout->bases.size())),
        unit_(unit),
        bytes_(layout->piece_bytes * layout->bases.size()) {}

  // False: the memory was refused.
  explicit operator bool() const { return count_ > 0; }
  uint64_t bytes() const { return bytes_; }
  uint32_t piece_count() const { return count_; }
  iovec piece(uint32_t i) const {
    if (layout_ == nullptr) return {spans_[i].data, spans_[i].bytes};
    return {static_cast<char*>(layout_->bases[i]) + unit_ * layout_->unit_stride_bytes,
            layout_->piece_bytes};
  }

 private:
  const Span* spans_ = nullptr;
  const Layout* layout_ = nullptr;
  uint32_t count_ = 0;
  uint32_t unit_ = 0;
  uint64_t bytes_ = 0;
};

// A position in a MemoryRef. Copying it makes a second, independent position.
class MemoryCursor {
 public:
  MemoryCursor() = default;
  explicit MemoryCursor(const MemoryRef& memory) : memory_(memory) {}
  // Behind the first `skip` bytes. Precondition: there are more.
  MemoryCursor(const MemoryRef& memory, uint64_t skip) : memory_(memory) {
    while (skip > 0) {
      const uint64_t n = Peek(skip).iov_len;
      Advance(n);
      skip -= n;
    }
  }

  // The bytes at the position that lie together, at most `max_bytes`. Precondition: not at the end.
  iovec Peek(uint64_t max_bytes) const {
    const iovec piece = memory_.piece(piece_);
    return {static_cast<char*>(piece.iov_base) + offset_,
            std::min<uint64_t>(piece.iov_len - offset_, max_bytes)};
  }
  // Moves on by at most what Peek() gave.
  void Advance(uint64_t bytes) {
    offset_ += bytes;
    if (offset_ == memory_.piece(piece_).iov_len) {
      ++piece_;
      offset_ = 0;
    }
  }

 private:
  MemoryRef memory_;
  uint32_t piece_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_MEMORY_REF_H_
