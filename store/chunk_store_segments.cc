// ChunkStore: segments that come and go while it runs.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

// Buckets moved, and chunks evicted and looked at, in one hold of the mutex.
constexpr size_t kBucketsPerHold = 4096;
constexpr size_t kEvictedPerHold = 256;
constexpr size_t kLooksPerHold = 4096;

absl::Status NoSuchSegment(const SegmentId& id) {
  return absl::NotFoundError(absl::StrCat("no segment has the id ", id.ToHex()));
}

}  // namespace

ChunkStore::SegmentState* ChunkStore::FindSegmentLocked(const SegmentId& id) {
  for (const auto& s : segments_) {
    if (s->segment->id() == id) return s.get();
  }
  return nullptr;
}

absl::Status ChunkStore::AddSegment(std::unique_ptr<Segment> segment) {
  if (segment->attached()) {
    return absl::InvalidArgumentError(
        absl::StrCat(segment->path(), " holds an older segment: remove the file"));
  }
  const SegmentId id = segment->id();
  {
    MutexLock lock(mutex_);
    CISTERN_RETURN_IF_ERROR(EnterSegmentLocked(std::move(segment)));
  }
  for (bool more = true; more;) {
    MutexLock lock(mutex_);  // anew each time: others get in between
    more = table_.Rehash(kBucketsPerHold);
  }
  MutexLock lock(mutex_);
  SegmentState& added = *FindSegmentLocked(id);
  added.draining = false;
  capacity_bytes_ += added.extents.capacity_bytes();
  return absl::OkStatus();
}

absl::Status ChunkStore::EnterSegmentLocked(std::unique_ptr<Segment> segment) {
  const uint32_t count = segment->layout().header_count;
  if (FindSegmentLocked(segment->id()) != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("a segment with the id ", segment->id().ToHex(), " is mounted already"));
  }
  if (segments_.size() >= kMaxSegments) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store has ", kMaxSegments, " segments, as many as it may"));
  }
  // The first gap between the others' entries, or the end.
  uint64_t first = 0;
  auto at = segments_.begin();
  for (; at != segments_.end() && (*at)->first_entry - first < count; ++at) {
    first = uint64_t{(*at)->first_entry} + (*at)->headers.count();
  }
  if (first + count >= ChunkTable::kNone) {
    return absl::ResourceExhaustedError(
        "the store would have 2^32 headers or more; raise expected_chunk");
  }
  if (first + count > table_.capacity()) table_.Grow(static_cast<uint32_t>(first + count));
  auto state = std::make_unique<SegmentState>(std::move(segment), static_cast<uint32_t>(first));
  for (uint32_t i = static_cast<uint32_t>(state->segment->namespace_slots().size()); i-- > 0;) {
    state->free_slots.push_back(i);
  }
  // Until the table has its buckets it takes no puts: chains would grow long.
  state->draining = true;
  segments_.insert(at, std::move(state));
  return absl::OkStatus();
}

absl::Status ChunkStore::BeginUnmount(const SegmentId& id) {
  MutexLock lock(mutex_);
  SegmentState* segment = FindSegmentLocked(id);
  if (segment == nullptr) return NoSuchSegment(id);
  if (segment->draining) return absl::OkStatus();
  const auto taking =
      std::count_if(segments_.begin(), segments_.end(), [](const auto& s) { return !s->draining; });
  if (taking == 1) {
    return absl::FailedPreconditionError(
        "it is the store's last segment: mount another first, or stop the store");
  }
  segment->draining = true;
  segment->drain_cursor = 0;
  capacity_bytes_ -= segment->extents.capacity_bytes();
  return absl::OkStatus();
}

absl::Status ChunkStore::CancelUnmount(const SegmentId& id) {
  MutexLock lock(mutex_);
  SegmentState* segment = FindSegmentLocked(id);
  if (segment == nullptr) return NoSuchSegment(id);
  if (!std::exchange(segment->draining, false)) return absl::OkStatus();
  capacity_bytes_ += segment->extents.capacity_bytes();
  return absl::OkStatus();
}

absl::StatusOr<ChunkStore::Drained> ChunkStore::DrainSlice(const SegmentId& id) {
  MutexLock lock(mutex_);
  SegmentState* segment = FindSegmentLocked(id);
  if (segment == nullptr) return NoSuchSegment(id);
  if (!segment->draining) return absl::FailedPreconditionError("the segment stays mounted");
  Drained drained;
  std::vector<uint32_t> victims;
  auto it = segment->by_address.lower_bound(segment->drain_cursor);
  for (size_t looks = 0;
       looks < kLooksPerHold && victims.size() < kEvictedPerHold && it != segment->by_address.end();
       ++looks, ++it) {
    const uint32_t entry = it->second.entry;
    if (table_.at(entry).state != ChunkEntry::State::kCommitted) continue;
    victims.push_back(entry);
    drained.bytes += uint64_t{it->second.pages} * Extent::kAlignment;
  }
  drained.pass_done = it == segment->by_address.end();
  segment->drain_cursor = drained.pass_done ? 0 : it->first;
  for (const uint32_t entry : victims) RemoveLocked(entry, wire::CAUSE_UNMOUNTED);
  drained.chunks = victims.size();
  drained.held = segment->headers.used();
  return drained;
}

absl::StatusOr<std::unique_ptr<Segment>> ChunkStore::TakeSegment(const SegmentId& id) {
  MutexLock lock(mutex_);
  const auto it = std::find_if(segments_.begin(), segments_.end(),
                               [&](const auto& s) { return s->segment->id() == id; });
  if (it == segments_.end()) return NoSuchSegment(id);
  SegmentState& state = **it;
  if (!state.draining || state.headers.used() != 0) {
    return absl::FailedPreconditionError("the segment is still in use");
  }
  CISTERN_CHECK(state.by_address.empty());
  std::unique_ptr<Segment> segment = std::move(state.segment);
  table_.Discard(state.first_entry, state.headers.count());
  segments_.erase(it);
  return segment;
}

}  // namespace cistern::store
