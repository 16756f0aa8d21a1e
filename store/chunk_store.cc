#include "store/chunk_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {
namespace {

uint32_t CountHeaders(const std::vector<std::unique_ptr<Segment>>& segments) {
  uint64_t count = 0;
  for (const auto& segment : segments) count += segment->layout().header_count;
  CISTERN_CHECK(count < ChunkTable::kNone);
  return static_cast<uint32_t>(count);
}

Extent PayloadRange(const Segment& segment) {
  return {segment.layout().payload_offset, segment.layout().payload_bytes()};
}

}  // namespace

ChunkStore::SegmentState::SegmentState(std::unique_ptr<Segment> s, uint32_t first)
    : segment(std::move(s)),
      extents(segment->layout().payload_offset, segment->layout().payload_bytes()),
      headers(segment->headers()),
      first_entry(first) {}

void ChunkStore::SegmentState::NoteExtent(const Extent& extent, uint32_t entry) {
  by_address.emplace(static_cast<uint32_t>(extent.offset / Extent::kAlignment),
                     Neighbour{entry, static_cast<uint32_t>(extent.bytes / Extent::kAlignment)});
}

void ChunkStore::SegmentState::ForgetExtent(const Extent& extent) {
  CISTERN_CHECK(by_address.erase(static_cast<uint32_t>(extent.offset / Extent::kAlignment)) == 1);
}

absl::StatusOr<std::unique_ptr<ChunkStore>> ChunkStore::Create(
    const ChunkStoreOptions& options, std::vector<std::unique_ptr<Segment>> segments,
    std::unique_ptr<VersionCeiling> versions, absl::Time now) {
  if (segments.empty()) return absl::InvalidArgumentError("a store needs a segment");
  if (segments.size() > kMaxSegments) {
    return absl::InvalidArgumentError(
        absl::StrCat("a store has at most ", kMaxSegments, " segments"));
  }
  uint64_t headers = 0;
  absl::flat_hash_map<SegmentId, const Segment*> ids;
  for (const auto& segment : segments) {
    headers += segment->layout().header_count;
    const auto [same, fresh] = ids.try_emplace(segment->id(), segment.get());
    if (!fresh) {
      return absl::FailedPreconditionError(absl::StrCat(
          "segments ", same->second->path(), " and ", segment->path(), " have the same id ",
          segment->id().ToHex(), ": one is a copy of the other; remove one of the files"));
    }
  }
  if (headers >= ChunkTable::kNone) {
    return absl::InvalidArgumentError(
        "the segments have more than 2^32 headers; raise expected_chunk_bytes");
  }
  std::unique_ptr<ChunkStore> store(
      new ChunkStore(options, std::move(segments), std::move(versions)));
  store->Recover(now);
  return store;
}

ChunkStore::ChunkStore(const ChunkStoreOptions& options,
                       std::vector<std::unique_ptr<Segment>> segments,
                       std::unique_ptr<VersionCeiling> versions)
    : options_(options),
      versions_(std::move(versions)),
      log_(options.record_log_records),
      table_(CountHeaders(segments), options.hash_seed) {
  uint32_t first_entry = 0;
  segments_.reserve(segments.size());
  for (auto& segment : segments) {
    const uint32_t count = segment->layout().header_count;
    capacity_bytes_ += segment->layout().payload_bytes();
    segments_.push_back(std::make_unique<SegmentState>(std::move(segment), first_entry));
    first_entry += count;
  }
}

ChunkStore::~ChunkStore() {
  MutexLock lock(mutex_);
  CISTERN_CHECK(references_ == 0 && inflight_chunks_ == 0);
}

// --- Recovery ---

void ChunkStore::Recover(absl::Time now) {
  MutexLock lock(mutex_);
  const uint64_t now_ms = static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMillis(now)));
  std::vector<ScannedHeader> scanned;
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    SegmentState& state = *segments_[i];
    RecoverNamespacesLocked(i);
    std::vector<HeaderTable::Found> found;
    const HeaderTable::ScanCounts counts = state.headers.Scan(PayloadRange(*state.segment), &found);
    recovery_.writing += counts.writing;
    recovery_.damaged += counts.damaged;
    for (HeaderTable::Found& f : found) scanned.push_back({i, std::move(f)});
  }
  // Versions of what is dropped count too: they were given out.
  for (const ScannedHeader& s : scanned) versions_->Saw(s.found.fields.version);
  const auto drop = [&](const ScannedHeader& s) {
    mutex_.AssertHeld();
    segments_[s.segment]->headers.Free(s.found.index);
    segments_[s.segment]->headers.Recycle(s.found.index);
  };
  const auto unwanted = std::partition(scanned.begin(), scanned.end(), [&](const ScannedHeader& s) {
    mutex_.AssertHeld();
    return KeepsLocked(s.found.fields, now_ms);
  });
  std::for_each(unwanted, scanned.end(), drop);
  scanned.erase(unwanted, scanned.end());

  const ResolvedScan resolved = ResolveScan(std::move(scanned));
  recovery_.overlapping = resolved.overlapping;
  recovery_.duplicate = resolved.duplicate;
  std::for_each(resolved.dropped.begin(), resolved.dropped.end(), drop);
  std::vector<std::vector<Extent>> used(segments_.size());
  for (const ScannedHeader& s : resolved.kept) used[s.segment].push_back(s.found.fields.extent);
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    // ResolveScan left no overlap and Scan nothing out of range.
    CISTERN_CHECK(segments_[i]->extents.Rebuild(std::move(used[i])).ok());
  }
  for (const ScannedHeader& s : resolved.kept) EnterRecoveredLocked(s);
}

void ChunkStore::RecoverNamespacesLocked(uint32_t segment) {
  SegmentState& state = *segments_[segment];
  const absl::Span<NamespaceSlot> slots = state.segment->namespace_slots();
  for (uint32_t i = static_cast<uint32_t>(slots.size()); i-- > 0;) {
    bool damaged = false;
    const std::optional<NamespaceRecord> record = ReadNamespaceSlot(slots[i], &damaged);
    absl::StatusOr<NamespaceIndex> index = absl::NotFoundError("free");
    if (record.has_value()) index = EnterNamespaceLocked(*record, /*may_reuse=*/false);
    if (!index.ok() || !state.namespace_slot.emplace(index->value, i).second) {
      if (damaged || record.has_value()) ClearNamespaceSlot(&slots[i]);
      state.free_slots.push_back(i);
      continue;
    }
    // Segments may differ when a removal was cut short: the later one counts.
    NamespaceRecord& known = namespaces_[index->value].record;
    known.valid_from = std::max(known.valid_from, record->valid_from);
    // A lost data folder must not let new chunks fall below the mark.
    versions_->Saw(record->valid_from);
  }
}

bool ChunkStore::KeepsLocked(const HeaderFields& fields, uint64_t now_ms) {
  const auto it = namespace_by_id_.find(fields.namespace_id);
  if (it == namespace_by_id_.end() || fields.version < namespaces_[it->second].record.valid_from) {
    ++recovery_.orphaned;
    return false;
  }
  if (fields.expiry_unix_ms != 0 && fields.expiry_unix_ms <= now_ms) {
    ++recovery_.expired;
    return false;
  }
  return true;
}

void ChunkStore::EnterRecoveredLocked(const ScannedHeader& scanned) {
  const HeaderFields& f = scanned.found.fields;
  const uint32_t entry = segments_[scanned.segment]->first_entry + scanned.found.index.value;
  const uint32_t ns = namespace_by_id_.at(f.namespace_id);
  ChunkEntry& e = table_.at(entry);
  e.set_name(f.name, ns);
  e.set_version(f.version);
  e.length = static_cast<uint32_t>(f.length);
  e.last_access_unix_s = f.last_access_unix_s;
  e.expiry_unix_s =
      static_cast<uint32_t>(std::min<uint64_t>((f.expiry_unix_ms + 999) / 1000, 0xFFFFFFFF));
  e.state = ChunkEntry::State::kCommitted;
  segments_[scanned.segment]->NoteExtent(f.extent, entry);
  table_.Link(entry);
  table_.PushYoungest(entry);
  if (e.expiry_unix_s != 0) expiries_.Add(e.expiry_unix_s, {entry, f.version});
  ++namespaces_[ns].chunk_count;
  namespaces_[ns].payload_bytes += f.length;
  committed_bytes_ += f.extent.bytes;
  payload_bytes_ += f.length;
  ++recovery_.recovered_chunks;
  recovery_.recovered_bytes += f.length;
}

// --- Namespaces ---

absl::StatusOr<NamespaceIndex> ChunkStore::EnterNamespaceLocked(const NamespaceRecord& record,
                                                                bool may_reuse) {
  const auto it = namespace_by_id_.find(record.id);
  if (it != namespace_by_id_.end()) return NamespaceIndex(it->second);
  uint32_t index = static_cast<uint32_t>(namespaces_.size());
  if (index >= NamespaceIndex::kMaxCount) {
    index = may_reuse ? UnusedNamespaceLocked() : NamespaceIndex::kMaxCount;
    if (index >= NamespaceIndex::kMaxCount) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this store has ", NamespaceIndex::kMaxCount,
                       " namespaces in use, as many as it may: remove some, or close clients"));
    }
    namespace_by_id_.erase(namespaces_[index].record.id);
    ClearNamespaceSlotsLocked(index);
  } else {
    namespaces_.emplace_back();
  }
  NamespaceState state;
  state.record = record;
  state.tenant_tag = TenantTag(record.tenant);
  state.serial = next_namespace_serial_++;
  namespaces_[index] = std::move(state);
  namespace_by_id_.emplace(record.id, index);
  return NamespaceIndex(index);
}

void ChunkStore::ClearNamespaceSlotsLocked(uint32_t ns) {
  for (const auto& segment : segments_) {
    const auto slot = segment->namespace_slot.find(ns);
    if (slot == segment->namespace_slot.end()) continue;
    ClearNamespaceSlot(&segment->segment->namespace_slots()[slot->second]);
    segment->free_slots.push_back(slot->second);
    segment->namespace_slot.erase(slot);
  }
}

uint32_t ChunkStore::UnusedNamespaceLocked() {
  // A record that the master may still ask for names its namespace by the index.
  const uint64_t acked = log_.range().first;
  for (size_t looks = 0; looks < namespaces_.size(); ++looks) {
    const uint32_t index = next_unused_;
    next_unused_ = (next_unused_ + 1) % static_cast<uint32_t>(namespaces_.size());
    const NamespaceState& ns = namespaces_[index];
    if (IsEmptyLocked(ns) && ns.bind_count == 0 && ns.last_record < acked) {
      return index;
    }
  }
  return NamespaceIndex::kMaxCount;
}

void ChunkStore::AppendRecordLocked(const Record& record) {
  namespaces_[record.namespace_index].last_record = log_.Append(record);
}

absl::StatusOr<NamespaceIndex> ChunkStore::BindNamespace(const NamespaceRecord& record) {
  CISTERN_RETURN_IF_ERROR(CheckNamespaceRecord(record));
  NamespaceRecord entered = record;
  entered.valid_from = Version(0);
  MutexLock lock(mutex_);
  CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex index,
                           EnterNamespaceLocked(entered, /*may_reuse=*/true));
  NamespaceState& state = namespaces_[index.value];
  if (state.dropped && IsEmptyLocked(state)) {
    ClearNamespaceSlotsLocked(index.value);
    state.record.options = record.options;
    state.dropped = false;
  }
  ++state.bind_count;
  return index;
}

void ChunkStore::UnbindNamespace(NamespaceIndex ns) {
  MutexLock lock(mutex_);
  CISTERN_CHECK(ns.value < namespaces_.size() && namespaces_[ns.value].bind_count > 0);
  --namespaces_[ns.value].bind_count;
}

std::optional<NamespaceIndex> ChunkStore::FindNamespace(const NamespaceId& id) const {
  MutexLock lock(mutex_);
  const auto it = namespace_by_id_.find(id);
  if (it == namespace_by_id_.end()) return std::nullopt;
  return NamespaceIndex(it->second);
}

wire::NamespaceOptions ChunkStore::NamespaceOptionsOf(NamespaceIndex ns) const {
  MutexLock lock(mutex_);
  CISTERN_CHECK(ns.value < namespaces_.size());
  return namespaces_[ns.value].record.options;
}

NamespaceId ChunkStore::NamespaceIdOf(NamespaceIndex ns) const {
  MutexLock lock(mutex_);
  CISTERN_CHECK(ns.value < namespaces_.size());
  return namespaces_[ns.value].record.id;
}

ChunkStore::NamespaceEntry ChunkStore::NamespaceEntryLocked(uint32_t index) const {
  NamespaceEntry entry;
  entry.index = index;
  entry.serial = namespaces_[index].serial;
  ToNamespaceInfo(namespaces_[index].record, &entry.info);
  return entry;
}

ChunkStore::NamespaceEntry ChunkStore::NamespaceAt(NamespaceIndex ns) const {
  MutexLock lock(mutex_);
  CISTERN_CHECK(ns.value < namespaces_.size());
  return NamespaceEntryLocked(ns.value);
}

uint64_t ChunkStore::NamespaceSerial(NamespaceIndex ns) const {
  MutexLock lock(mutex_);
  CISTERN_CHECK(ns.value < namespaces_.size());
  return namespaces_[ns.value].serial;
}

std::vector<ChunkStore::NamespaceEntry> ChunkStore::NamespacesWithChunks() const {
  std::vector<NamespaceEntry> entries;
  MutexLock lock(mutex_);
  for (uint32_t i = 0; i < namespaces_.size(); ++i) {
    if (namespaces_[i].chunk_count != 0) entries.push_back(NamespaceEntryLocked(i));
  }
  return entries;
}

std::vector<NamespaceUsage> ChunkStore::NamespaceUsages() const {
  std::vector<NamespaceUsage> usages;
  MutexLock lock(mutex_);
  for (const NamespaceState& ns : namespaces_) {
    usages.push_back({ns.record, ns.chunk_count, ns.payload_bytes});
  }
  return usages;
}

bool ChunkStore::NamespaceNumbersFrom(uint32_t* next, size_t max, NamespaceNumbers* others,
                                      std::vector<NamespaceNumbers>* out) const {
  constexpr uint32_t kSlice = 512;
  MutexLock lock(mutex_);
  const auto count = static_cast<uint32_t>(namespaces_.size());
  for (const uint32_t end = std::min(count, *next + kSlice); *next < end; ++*next) {
    const NamespaceState& ns = namespaces_[*next];
    if (out->size() < max) {
      out->push_back({ns.record.name, ns.chunk_count, ns.payload_bytes});
      continue;
    }
    others->chunk_count += ns.chunk_count;
    others->payload_bytes += ns.payload_bytes;
  }
  return *next < count;
}

uint32_t ChunkStore::namespace_count() const {
  MutexLock lock(mutex_);
  return static_cast<uint32_t>(namespaces_.size());
}

bool ChunkStore::EnsureNamespaceSlotLocked(SegmentState& segment, NamespaceIndex ns) {
  if (segment.namespace_slot.contains(ns.value)) return true;
  const absl::Span<NamespaceSlot> slots = segment.segment->namespace_slots();
  if (segment.free_slots.empty()) {
    // Slots of namespaces without chunks are there for the taking.
    for (auto it = segment.namespace_slot.begin(); it != segment.namespace_slot.end();) {
      const NamespaceState& state = namespaces_[it->first];
      if (!IsEmptyLocked(state)) {
        ++it;
        continue;
      }
      ClearNamespaceSlot(&slots[it->second]);
      segment.free_slots.push_back(it->second);
      segment.namespace_slot.erase(it++);
    }
  }
  if (segment.free_slots.empty()) {
    CISTERN_LOG_EVERY(Warning, absl::Minutes(1), "segment ", segment.segment->path(),
                      " holds chunks of ", slots.size(),
                      " namespaces, as many as it has slots: remove unused namespaces");
    return false;
  }
  const uint32_t slot = segment.free_slots.back();
  segment.free_slots.pop_back();
  WriteNamespaceSlot(namespaces_[ns.value].record, &slots[slot]);
  segment.namespace_slot.emplace(ns.value, slot);
  return true;
}

uint64_t ChunkStore::DropNamespace(const NamespaceId& id) {
  constexpr uint32_t kEntriesPerSlice = 4096;
  uint32_t ns = 0;
  Version valid_from;
  {
    MutexLock lock(mutex_);
    const auto it = namespace_by_id_.find(id);
    if (it == namespace_by_id_.end()) return 0;
    ns = it->second;
    // Commits take their version under this mutex, so every chunk committed so far is below it.
    valid_from = versions_->Peek();
    namespaces_[ns].record.valid_from = valid_from;
    namespaces_[ns].dropped = true;
    for (const auto& segment : segments_) {
      const auto slot = segment->namespace_slot.find(ns);
      if (slot == segment->namespace_slot.end()) continue;
      WriteNamespaceSlot(namespaces_[ns].record,
                         &segment->segment->namespace_slots()[slot->second]);
    }
  }
  uint64_t removed = 0;
  for (uint64_t begin = 0;; begin += kEntriesPerSlice) {
    MutexLock lock(mutex_);
    if (begin >= table_.capacity()) {
      if (IsEmptyLocked(namespaces_[ns])) ClearNamespaceSlotsLocked(ns);
      return removed;
    }
    const uint64_t end = std::min<uint64_t>(begin + kEntriesPerSlice, table_.capacity());
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t entry = static_cast<uint32_t>(i);
      const ChunkEntry& e = table_.at(entry);
      if (e.state == ChunkEntry::State::kCommitted && e.namespace_index() == ns &&
          e.version() < valid_from) {
        RemoveLocked(entry, wire::CAUSE_NAMESPACE_REMOVED);
        ++removed;
      }
    }
  }
}

size_t ChunkStore::SegmentNumberLocked(uint32_t entry) const {
  const auto it = std::upper_bound(
      segments_.begin(), segments_.end(), entry,
      [](uint32_t e, const std::unique_ptr<SegmentState>& s) { return e < s->first_entry; });
  return static_cast<size_t>(it - segments_.begin()) - 1;
}

}  // namespace cistern::store
