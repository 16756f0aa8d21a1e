#include "store/segment_format.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cistern::store {
namespace {

// Slots take at most 1 % of the segment.
uint32_t NamespaceSlotsFor(uint64_t segment_bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(segment_bytes >> 19, 16, 1024));
}

}  // namespace

absl::StatusOr<SegmentLayout> SegmentLayout::Make(uint64_t segment_bytes,
                                                  uint64_t expected_chunk_bytes) {
  if (segment_bytes < kMinSegmentBytes || segment_bytes > kMaxSegmentBytes ||
      segment_bytes % Extent::kAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a segment has 8 MiB to 64 GiB in steps of 4 KiB, not ", segment_bytes, " bytes"));
  }
  if (expected_chunk_bytes < kMinChunkBytes || expected_chunk_bytes > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected_chunk_bytes is 4 KiB to 1 GiB, not ", expected_chunk_bytes));
  }
  SegmentLayout layout;
  layout.segment_bytes = segment_bytes;
  layout.namespace_offset = kSuperblockBytes;
  layout.namespace_slots = NamespaceSlotsFor(segment_bytes);
  layout.header_offset = RoundUp(
      layout.namespace_offset + layout.namespace_slots * kNamespaceSlotBytes, Extent::kAlignment);
  layout.header_count =
      static_cast<uint32_t>(std::max<uint64_t>(1, segment_bytes / expected_chunk_bytes));
  layout.payload_offset =
      RoundUp(layout.header_offset + layout.header_count * kHeaderBytes, Extent::kAlignment);
  // The tables take at most 1 % + 3.2 % of 8 MiB or more, so payload is left.
  return layout;
}

}  // namespace cistern::store
