#include "store/extent_allocator.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::store {

ExtentAllocator::ExtentAllocator(uint64_t begin, uint64_t bytes)
    : begin_(begin), capacity_units_(bytes / Extent::kAlignment) {
  CISTERN_CHECK(begin % Extent::kAlignment == 0 && bytes % Extent::kAlignment == 0);
  CISTERN_CHECK(capacity_units_ <= 0xFFFFFFFF);
  if (capacity_units_ > 0) Insert(0, static_cast<Unit>(capacity_units_));
}

void ExtentAllocator::Insert(Unit offset, Unit units) {
  by_address_.emplace(offset, units);
  by_size_.insert(uint64_t{units} << 32 | offset);
  free_units_ += units;
}

void ExtentAllocator::Erase(Unit offset, Unit units) {
  by_address_.erase(offset);
  by_size_.erase(uint64_t{units} << 32 | offset);
  free_units_ -= units;
}

std::optional<Extent> ExtentAllocator::Allocate(uint64_t bytes) {
  CISTERN_CHECK(bytes > 0);
  if (bytes > capacity_bytes()) return std::nullopt;
  const Unit units = static_cast<Unit>(RoundUp(bytes, Extent::kAlignment) / Extent::kAlignment);
  const auto it = by_size_.lower_bound(uint64_t{units} << 32);
  if (it == by_size_.end()) return std::nullopt;
  const Unit found_units = static_cast<Unit>(*it >> 32);
  const Unit offset = static_cast<Unit>(*it);
  Erase(offset, found_units);
  if (found_units > units) Insert(offset + units, found_units - units);
  return Extent{begin_ + uint64_t{offset} * Extent::kAlignment,
                uint64_t{units} * Extent::kAlignment};
}

void ExtentAllocator::Free(const Extent& extent) {
  CISTERN_CHECK(extent.bytes > 0 && extent.offset >= begin_ &&
                extent.end() <= begin_ + capacity_bytes() &&
                extent.offset % Extent::kAlignment == 0 && extent.bytes % Extent::kAlignment == 0);
  Unit offset = static_cast<Unit>((extent.offset - begin_) / Extent::kAlignment);
  Unit units = static_cast<Unit>(extent.bytes / Extent::kAlignment);
  const auto right = by_address_.lower_bound(offset);
  const bool has_right = right != by_address_.end();
  const Unit right_offset = has_right ? right->first : 0;
  const Unit right_units = has_right ? right->second : 0;
  bool has_left = right != by_address_.begin();
  Unit left_offset = 0;
  Unit left_units = 0;
  if (has_left) {
    const auto left = std::prev(right);
    left_offset = left->first;
    left_units = left->second;
  }
  CISTERN_CHECK(!has_right || uint64_t{offset} + units <= right_offset);
  CISTERN_CHECK(!has_left || uint64_t{left_offset} + left_units <= offset);
  if (has_right && offset + units == right_offset) {
    Erase(right_offset, right_units);
    units += right_units;
  }
  if (has_left && left_offset + left_units == offset) {
    Erase(left_offset, left_units);
    offset = left_offset;
    units += left_units;
  }
  Insert(offset, units);
}

absl::Status ExtentAllocator::Rebuild(std::vector<Extent> used) {
  std::sort(used.begin(), used.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  const uint64_t range_end = begin_ + capacity_bytes();
  uint64_t end = begin_;
  for (const Extent& extent : used) {
    if (extent.bytes == 0 || extent.offset % Extent::kAlignment != 0 ||
        extent.bytes % Extent::kAlignment != 0 || extent.offset < begin_ ||
        extent.offset > range_end || extent.bytes > range_end - extent.offset) {
      return absl::InvalidArgumentError(absl::StrCat("extent ", extent.offset, "+", extent.bytes,
                                                     " is unaligned or outside the range"));
    }
    if (extent.offset < end) {
      return absl::InvalidArgumentError(
          absl::StrCat("extent ", extent.offset, "+", extent.bytes, " overlaps the one before it"));
    }
    end = extent.end();
  }
  by_address_.clear();
  by_size_.clear();
  free_units_ = 0;
  uint64_t at = begin_;
  const auto insert_gap = [this](uint64_t from, uint64_t to) {
    if (from == to) return;
    Insert(static_cast<Unit>((from - begin_) / Extent::kAlignment),
           static_cast<Unit>((to - from) / Extent::kAlignment));
  };
  for (const Extent& extent : used) {
    insert_gap(at, extent.offset);
    at = extent.end();
  }
  insert_gap(at, range_end);
  return absl::OkStatus();
}

uint64_t ExtentAllocator::largest_free_bytes() const {
  return by_size_.empty() ? 0 : (*by_size_.rbegin() >> 32) * Extent::kAlignment;
}

}  // namespace cistern::store
