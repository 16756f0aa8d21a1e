// ChunkStore: everything that takes chunks away.
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

// Chunks looked at in one hold of the mutex.
constexpr size_t kLooksPerHold = 256;
// With as many looks beyond four for each chunk evicted, the evictor stops sparing what was read
// since it last came by.
constexpr uint64_t kSparingLooks = 1024;
// Chunks evicted together to make one hole, in one hold of the mutex.
constexpr size_t kMaxHoleChunks = 8192;

}  // namespace

void ChunkStore::RemoveLocked(uint32_t entry, wire::Cause cause, bool silent) {
  ChunkEntry& e = table_.at(entry);
  CISTERN_CHECK(e.state == ChunkEntry::State::kCommitted);
  SegmentState& segment = SegmentOfLocked(entry);
  const HeaderIndex header = HeaderOf(segment, entry);
  const Extent extent = ExtentOfLocked(entry);
  table_.Unlink(entry);
  table_.RemoveFromList(entry);
  segment.headers.Free(header);
  e.state = ChunkEntry::State::kUnlinked;

  NamespaceState& ns = namespaces_[e.namespace_index()];
  --ns.chunk_count;
  ns.payload_bytes -= e.length;
  committed_bytes_ -= extent.bytes;
  payload_bytes_ -= e.length;
  ++removed_by_cause_[cause];
  if (!silent) {
    Record record;
    record.name = e.name();
    record.version = e.version();
    record.length = e.length;
    record.namespace_index = e.namespace_index();
    record.cause = static_cast<uint8_t>(cause);
    AppendRecordLocked(record);
  }
  if (e.expiry_unix_s != 0) {
    expiries_.NoteStale([this](const ExpiryIndex::Item& item) {
      mutex_.AssertHeld();
      const ChunkEntry& live = table_.at(item.entry);
      return live.state == ChunkEntry::State::kCommitted && live.version() == item.version;
    });
  }
  if (e.refcount == 0) RecycleLocked(entry, extent);
}

void ChunkStore::RecycleLocked(uint32_t entry, const Extent& extent) {
  SegmentState& segment = SegmentOfLocked(entry);
  table_.at(entry).state = ChunkEntry::State::kFree;
  segment.ForgetExtent(extent);
  segment.extents.Free(extent);
  segment.headers.Recycle(HeaderOf(segment, entry));
}

Extent ChunkStore::ExtentOfLocked(uint32_t entry) const {
  const SegmentState& segment = SegmentOfLocked(entry);
  const auto extent_of = [](const auto& at) {
    return Extent{uint64_t{at.first} * Extent::kAlignment,
                  uint64_t{at.second.pages} * Extent::kAlignment};
  };
  const Extent told = segment.headers.Read(HeaderOf(segment, entry)).extent;
  const auto found =
      segment.by_address.find(static_cast<uint32_t>(told.offset / Extent::kAlignment));
  if (found != segment.by_address.end() && found->second.entry == entry) return extent_of(*found);
  // Bits of the header have flipped: what is known in our own memory counts. Slow, and never seen
  // on sound memory.
  const auto known = std::find_if(segment.by_address.begin(), segment.by_address.end(),
                                  [entry](const auto& at) { return at.second.entry == entry; });
  CISTERN_CHECK(known != segment.by_address.end());
  return extent_of(*known);
}

wire::ChunkStatus ChunkStore::Remove(NamespaceIndex ns, const ChunkName& name, Version version,
                                     wire::Cause cause) {
  MutexLock lock(mutex_);
  const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
  if (entry == ChunkTable::kNone) return wire::CHUNK_NOT_FOUND;
  const ChunkEntry& e = table_.at(entry);
  if (e.namespace_index() != ns.value || (version.value != 0 && e.version() != version)) {
    return wire::CHUNK_NOT_FOUND;
  }
  RemoveLocked(entry, cause);
  return wire::CHUNK_OK;
}

bool ChunkStore::Evict(const ChunkName& name, Version version, wire::Cause cause) {
  MutexLock lock(mutex_);
  const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
  if (entry == ChunkTable::kNone || table_.at(entry).version() != version) return false;
  RemoveLocked(entry, cause);
  return true;
}

size_t ChunkStore::ExpireDue(absl::Time now, size_t max) {
  const uint32_t now_s = static_cast<uint32_t>(std::max<int64_t>(0, absl::ToUnixSeconds(now)));
  std::vector<ExpiryIndex::Item> due;
  size_t looked = 0;
  while (looked < max) {
    MutexLock lock(mutex_);
    due.clear();
    const size_t n = expiries_.TakeDue(
        now_s, std::min(kLooksPerHold, max - looked),
        [this](const ExpiryIndex::Item& item) {
          mutex_.AssertHeld();
          const ChunkEntry& e = table_.at(item.entry);
          return e.state == ChunkEntry::State::kCommitted && e.version() == item.version;
        },
        &due);
    for (const ExpiryIndex::Item& item : due) {
      // Its item is gone already: nothing goes stale by removing it.
      table_.at(item.entry).expiry_unix_s = 0;
      RemoveLocked(item.entry, wire::CAUSE_EXPIRED);
    }
    if (n == 0) break;
    looked += n;
  }
  return looked;
}

absl::Time ChunkStore::NextExpiry() const {
  MutexLock lock(mutex_);
  const uint32_t next = expiries_.next_due();
  return next == 0 ? absl::InfiniteFuture() : absl::FromUnixSeconds(next);
}

bool ChunkStore::RoomMadeLocked(const EvictResult& so_far, uint64_t bytes,
                                uint64_t extent_bytes) const {
  if (so_far.bytes < bytes) return false;
  if (extent_bytes == 0) return true;
  return std::any_of(segments_.begin(), segments_.end(), [&](const auto& s) {
    return !s->draining && !s->headers.full() && s->extents.Fits(extent_bytes);
  });
}

bool ChunkStore::EvictableLocked(const ChunkEntry& e, int64_t now_s) const {
  if (e.state != ChunkEntry::State::kCommitted || e.refcount != 0) return false;
  if ((e.shard_and_flags & ChunkEntry::kEverRead) == 0) return true;
  const int64_t age_s = now_s - int64_t{e.last_access_unix_s};
  const int64_t spare_s = absl::ToInt64Seconds(options_.spare_recent);
  // An access in the future means that the clock was set back.
  return age_s >= spare_s || age_s <= -spare_s;
}

void ChunkStore::EvictAroundLocked(uint32_t anchor, uint64_t extent_bytes, wire::Cause cause,
                                   int64_t now_s, EvictResult* result) {
  SegmentState& segment = SegmentOfLocked(anchor);
  auto& all = segment.by_address;
  const Extent range{segment.segment->layout().payload_offset,
                     segment.segment->layout().payload_bytes()};
  const auto begin_of = [](auto it) { return uint64_t{it->first} * Extent::kAlignment; };
  const auto end_of = [](auto it) {
    return (uint64_t{it->first} + it->second.pages) * Extent::kAlignment;
  };
  const auto may_go = [&](auto it) {
    mutex_.AssertHeld();
    return EvictableLocked(table_.at(it->second.entry), now_s);
  };
  // What was not read since it was last looked at goes first, then what is older.
  const auto rank = [&](auto it) {
    mutex_.AssertHeld();
    const ChunkEntry& e = table_.at(it->second.entry);
    return std::tuple(e.touched, e.last_access_unix_s, e.version());
  };
  const Extent own = ExtentOfLocked(anchor);
  auto first = all.find(static_cast<uint32_t>(own.offset / Extent::kAlignment));
  auto end = std::next(first);  // the hole takes [first, end) and the free space on both sides
  std::vector<uint32_t> victims = {anchor};
  while (true) {
    const uint64_t left = first == all.begin() ? range.offset : end_of(std::prev(first));
    const uint64_t right = end == all.end() ? range.end() : begin_of(end);
    if (right - left >= extent_bytes) break;
    const bool left_may = first != all.begin() && may_go(std::prev(first));
    const bool right_may = end != all.end() && may_go(end);
    if ((!left_may && !right_may) || victims.size() == kMaxHoleChunks) {
      victims = {anchor};  // no hole of that size here: only the oldest goes
      break;
    }
    if (left_may && (!right_may || rank(std::prev(first)) < rank(end))) {
      --first;
      victims.push_back(first->second.entry);
    } else {
      victims.push_back(end->second.entry);
      ++end;
    }
  }
  for (const uint32_t victim : victims) {
    result->bytes += ExtentOfLocked(victim).bytes;
    ++result->chunks;
    RemoveLocked(victim, cause);
  }
}

EvictResult ChunkStore::EvictSelf(uint64_t bytes, uint64_t extent_bytes, wire::Cause cause,
                                  absl::Time now) {
  const int64_t now_s = absl::ToUnixSeconds(now);
  EvictResult result;
  uint64_t looks = 0;
  uint64_t looks_without_sparing = 0;
  while (true) {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < kLooksPerHold; ++i, ++looks) {
      result.satisfied = RoomMadeLocked(result, bytes, extent_bytes);
      const uint32_t entry = table_.oldest();
      if (result.satisfied || entry == ChunkTable::kNone) return result;
      ChunkEntry& e = table_.at(entry);
      const bool sparing = looks < 4 * result.chunks + kSparingLooks;
      if (!sparing && ++looks_without_sparing > table_.listed_count()) return result;
      // What lies in a segment that is being unmounted goes anyway, and makes no room.
      const bool may_go = !SegmentOfLocked(entry).draining && EvictableLocked(e, now_s);
      if (!may_go || (sparing && e.touched)) {
        e.touched = false;
        table_.RemoveFromList(entry);
        table_.PushYoungest(entry);
        continue;
      }
      looks_without_sparing = 0;
      const uint64_t before = result.chunks;
      EvictAroundLocked(entry, extent_bytes, cause, now_s, &result);
      if (result.chunks - before >= kLooksPerHold) break;  // let others in
    }
  }
}

uint64_t ChunkStore::ReserveDeficit() const {
  MutexLock lock(mutex_);
  const uint64_t reserve =
      static_cast<uint64_t>(options_.reserve_share * static_cast<double>(capacity_bytes_));
  uint64_t free = 0;
  for (const auto& s : segments_) free += s->draining ? 0 : s->extents.free_bytes();
  return free >= reserve ? 0 : reserve - free;
}

}  // namespace cistern::store
