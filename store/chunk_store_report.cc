// ChunkStore: what is held, for heartbeats, snapshots and leak checks.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "base/columns.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

// Entries looked at for one page: bounds the hold of the mutex over an almost empty table.
constexpr uint64_t kEntriesPerPage = 65'536;

}  // namespace

void ChunkStore::Usage(absl::Time now, wire::TierUsage* out) const {
  MutexLock lock(mutex_);
  uint64_t free = 0;
  uint64_t largest = 0;
  uint64_t headers_used = 0;
  uint64_t headers = 0;
  uint64_t capacity = capacity_bytes_;
  for (const auto& s : segments_) {
    headers_used += s->headers.used();
    if (s->draining) {
      // Shrinks with what it still holds: neither does the store look overfull at once, nor has it
      // room that no put can have.
      capacity += s->extents.capacity_bytes() - s->extents.free_bytes();
      headers += s->headers.used();
      continue;
    }
    headers += s->headers.count();
    free += s->extents.free_bytes();
    largest = std::max(largest, s->extents.largest_free_bytes());
  }
  out->set_tier(wire::TIER_DRAM);
  out->set_capacity_bytes(capacity);
  out->set_used_bytes(capacity - free);
  out->set_committed_bytes(committed_bytes_);
  out->set_payload_bytes(payload_bytes_);
  out->set_chunk_count(table_.listed_count());
  out->set_largest_free_extent_bytes(largest);
  out->set_header_count(headers);
  out->set_headers_used(headers_used);
  const uint32_t oldest = table_.oldest();
  int64_t age_s = 0;
  if (oldest != ChunkTable::kNone) {
    const SegmentState& s = SegmentOfLocked(oldest);
    const uint64_t created_ms = s.headers.Read(HeaderOf(s, oldest)).created_unix_ms;
    age_s = absl::ToUnixSeconds(now) - static_cast<int64_t>(created_ms / 1000);
  }
  out->set_oldest_age_s(static_cast<uint32_t>(std::clamp<int64_t>(age_s, 0, 0xFFFFFFFF)));
}

void ChunkStore::SegmentInfos(std::vector<wire::SegmentInfo>* out) const {
  MutexLock lock(mutex_);
  for (const auto& state : segments_) {
    const SegmentState& s = *state;
    wire::SegmentInfo& info = out->emplace_back();
    info.set_segment_id(s.segment->id().bytes.data(), s.segment->id().bytes.size());
    info.set_tier(wire::TIER_DRAM);
    info.set_bytes(s.segment->layout().segment_bytes);
    info.set_allocatable_bytes(s.extents.capacity_bytes());
    info.set_free_bytes(s.extents.free_bytes());
    info.set_largest_free_extent_bytes(s.extents.largest_free_bytes());
    info.set_header_count(s.headers.count());
    info.set_headers_used(s.headers.used());
    info.set_path(s.segment->path());
    info.set_persistent(s.segment->persistent());
    info.set_name(s.segment->name());
    info.set_unmounting(s.draining);
    info.set_huge_pages(HugePagesName(s.segment->huge_pages()));
    info.set_huge_bytes(s.segment->huge_bytes());
  }
}

void ChunkStore::FillCounters(wire::StoreCounters* out) const {
  const uint64_t dropped = log_.dropped();
  MutexLock lock(mutex_);
  out->set_get_chunks(get_hits_ + get_misses_);
  out->set_get_hits(get_hits_);
  out->set_get_misses(get_misses_);
  out->set_put_chunks(put_chunks_);
  out->set_put_present(put_present_);
  out->set_put_refused(std::accumulate(put_outcomes_.refused_by.begin(),
                                       put_outcomes_.refused_by.end(), uint64_t{0}));
  out->set_put_bytes(put_bytes_);
  out->set_verify_failures(verify_failures_);
  out->set_inflight_bytes(inflight_bytes_);
  out->set_records_dropped(dropped);
  out->clear_removed_by_cause();
  for (const uint64_t n : removed_by_cause_) out->add_removed_by_cause(n);
}

uint64_t ChunkStore::chunk_count() const {
  MutexLock lock(mutex_);
  return table_.listed_count();
}

uint64_t ChunkStore::inflight_bytes() const {
  MutexLock lock(mutex_);
  return inflight_bytes_;
}

bool ChunkStore::AllFree() const {
  MutexLock lock(mutex_);
  const bool segments_free = std::all_of(segments_.begin(), segments_.end(), [](const auto& s) {
    return s->headers.used() == 0 && s->extents.free_bytes() == s->extents.capacity_bytes() &&
           s->extents.free_extent_count() == 1;
  });
  const bool namespaces_empty =
      std::all_of(namespaces_.begin(), namespaces_.end(), [](const NamespaceState& ns) {
        return ns.chunk_count == 0 && ns.payload_bytes == 0 && ns.writing_count == 0;
      });
  return segments_free && namespaces_empty && table_.listed_count() == 0 && references_ == 0 &&
         inflight_chunks_ == 0 && inflight_bytes_ == 0 && committed_bytes_ == 0 &&
         payload_bytes_ == 0;
}

std::optional<uint64_t> ChunkStore::ReadPage(uint64_t cursor, size_t max,
                                             wire::SnapshotPage* page) const {
  std::vector<Record> records;
  std::vector<uint32_t> accesses;
  uint64_t at = cursor;
  bool at_end = false;
  {
    MutexLock lock(mutex_);
    const uint64_t end = std::min<uint64_t>(table_.capacity(), cursor + kEntriesPerPage);
    for (; at < end && records.size() < max; ++at) {
      const ChunkEntry& e = table_.at(static_cast<uint32_t>(at));
      if (e.state != ChunkEntry::State::kCommitted) continue;
      Record& r = records.emplace_back();
      r.name = e.name();
      r.version = e.version();
      r.length = e.length;
      r.expiry_unix_s = e.expiry_unix_s;
      r.namespace_index = e.namespace_index();
      r.tiers = wire::TIER_DRAM;
      r.cause = wire::CAUSE_PUT;
      if (namespaces_[r.namespace_index].record.options.mutable_chunks()) {
        // 0 is older than any: a rotten chunk is not to win over a sound one.
        const std::optional<HeaderFields> f = SoundHeaderLocked(static_cast<uint32_t>(at));
        r.mutation = f.has_value() ? f->mutation : 0;
      }
      accesses.push_back(e.last_access_unix_s);
    }
    at_end = at >= table_.capacity();
  }
  DeltaBuilder builder(records.size(), page->mutable_records());
  ColumnWriter<uint32_t> last_access(page->mutable_last_access(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    builder.Set(i, records[i]);
    last_access.Set(i, accesses[i]);
  }
  builder.Finish();
  if (at_end) return std::nullopt;
  return at;
}

std::optional<uint64_t> ChunkStore::ReadKeys(NamespaceIndex ns, uint64_t cursor, absl::Time now,
                                             std::vector<KeptKey>* out) const {
  constexpr uint64_t kBucketsPerHold = 2'048;
  constexpr size_t kKeyBytesPerHold = 64 << 10;
  const int64_t now_s = absl::ToUnixSeconds(now);
  size_t copied = 0;
  MutexLock lock(mutex_);
  const uint64_t buckets = table_.bucket_count();
  const uint64_t end = std::min(buckets, cursor + kBucketsPerHold);
  uint64_t at = cursor;
  for (; at < end && copied < kKeyBytesPerHold; ++at) {
    table_.ForEachInBucket(at, [&](uint32_t entry) {
      mutex_.AssertHeld();
      const ChunkEntry& e = table_.at(entry);
      if (e.state != ChunkEntry::State::kCommitted || e.namespace_index() != ns.value ||
          (e.expiry_unix_s != 0 && e.expiry_unix_s <= now_s)) {
        return;
      }
      const std::optional<HeaderFields> f = SoundHeaderLocked(entry);
      if (!f.has_value() || (f->flags & kHeaderFlagKeptKey) == 0) return;
      const auto parts = static_cast<uint32_t>(
          f->part_bytes == 0 ? 1 : (f->length + f->part_bytes - 1) / f->part_bytes);
      const uint64_t offset = KeptKeyOffset(f->length, parts);
      uint16_t length = 0;
      if (offset + sizeof(length) > f->extent.bytes) return;
      const char* kept = SegmentOfLocked(entry).segment->At(f->extent.offset + offset);
      std::memcpy(&length, kept, sizeof(length));
      // It rots too, and must not lead out of the extent.
      if (length > kMaxKeyBytes || offset + sizeof(length) + length > f->extent.bytes) return;
      out->push_back({e.name(), f->length, std::string(kept + sizeof(length), length)});
      copied += length;
    });
  }
  if (at >= buckets) return std::nullopt;
  return at;
}

}  // namespace cistern::store
