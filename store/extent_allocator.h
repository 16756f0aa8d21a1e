// Hands out 4 KiB aligned extents of one range: best fit, neighbours coalesced at once.
#ifndef CISTERN_STORE_EXTENT_ALLOCATOR_H_
#define CISTERN_STORE_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "base/ids.h"

namespace cistern::store {

// Free space is kept by address (to join neighbours) and by size (to find the smallest that fits;
// the lowest address among equals). Every operation is O(log free extents). State lives in ordinary
// memory and is rebuilt from the headers at start.
//
// Not thread-safe: ChunkStore calls it under its mutex. Owns no memory of the range.
class ExtentAllocator {
 public:
  // Manages [begin, begin + bytes). Both are multiples of 4 KiB; bytes is at most 16 TiB - 4 KiB.
  ExtentAllocator(uint64_t begin, uint64_t bytes);

  // The smallest free extent that holds `bytes` (rounded up to 4 KiB), cut to size; nullopt when
  // none does. Precondition: bytes > 0.
  std::optional<Extent> Allocate(uint64_t bytes);
  // Gives back exactly what Allocate or Rebuild handed out. Anything else is a bug and aborts where
  // it can be seen (overlap with free space, outside the range).
  void Free(const Extent& extent);

  // Forgets everything and marks `used` as handed out. InvalidArgument, with nothing changed, when
  // one is unaligned, empty, outside the range, or overlaps another.
  absl::Status Rebuild(std::vector<Extent> used);

  uint64_t capacity_bytes() const { return capacity_units_ * Extent::kAlignment; }
  uint64_t free_bytes() const { return free_units_ * Extent::kAlignment; }
  uint64_t largest_free_bytes() const;
  size_t free_extent_count() const { return by_address_.size(); }
  // Whether Allocate(bytes) would succeed now.
  bool Fits(uint64_t bytes) const { return largest_free_bytes() >= bytes; }

 private:
  using Unit = uint32_t;  // 4 KiB, from begin_
  void Insert(Unit offset, Unit units);
  void Erase(Unit offset, Unit units);

  const uint64_t begin_;
  const uint64_t capacity_units_;
  uint64_t free_units_ = 0;
  absl::btree_map<Unit, Unit> by_address_;  // offset -> units
  absl::btree_set<uint64_t> by_size_;       // units << 32 | offset
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_EXTENT_ALLOCATOR_H_
