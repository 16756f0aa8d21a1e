// ChunkStore: from reservation to commit.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/fault.h"
#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

uint64_t UnixMs(absl::Time t) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMillis(t)));
}

// Rounded up, so that nothing expires early.
uint32_t ExpirySeconds(uint64_t unix_ms) {
  return static_cast<uint32_t>(std::min<uint64_t>((unix_ms + 999) / 1000, 0xFFFFFFFF));
}

absl::Status CheckParts(const PutSlot& slot) {
  const PartLayout& layout = slot.layout();
  for (uint32_t i = 0; i < layout.count; ++i) {
    if (DigestOf(slot.payload().data() + layout.PartBegin(i), layout.PartBytes(i)) !=
        slot.part_table()[i]) {
      return absl::DataLossError("the bytes received do not match their digest");
    }
  }
  return absl::OkStatus();
}

uint64_t RootOf(const PutSlot& slot, wire::DigestKind kind) {
  if (kind == wire::DIGEST_NONE) return 0;
  return RootDigest(slot.part_table(), slot.layout().length, slot.name());
}

}  // namespace

PutSlot& PutSlot::operator=(PutSlot&& other) noexcept {
  if (this == &other) return *this;
  Abort();
  store_ = std::exchange(other.store_, nullptr);
  entry_ = other.entry_;
  namespace_index_ = other.namespace_index_;
  name_ = other.name_;
  layout_ = other.layout_;
  extent_ = other.extent_;
  expiry_unix_ms_ = other.expiry_unix_ms_;
  mutation_ = other.mutation_;
  replace_ = other.replace_;
  payload_ = other.payload_;
  kept_key_ = other.kept_key_;
  part_table_ = other.part_table_;
  single_part_digest_ = other.single_part_digest_;
  return *this;
}

void PutSlot::KeepKey(std::string_view key) {
  const auto length = static_cast<uint16_t>(key.size());
  std::memcpy(kept_key_, &length, sizeof(length));
  std::memcpy(kept_key_ + sizeof(length), key.data(), key.size());
}

void PutSlot::Abort() {
  if (store_ != nullptr) std::exchange(store_, nullptr)->AbortSlot(this);
}

const char* PutRefusalName(PutRefusal refusal) {
  switch (refusal) {
    case PutRefusal::kNone:
      return "none";
    case PutRefusal::kNoRoom:
      return "no_room";
    case PutRefusal::kHeaders:
      return "headers";
    case PutRefusal::kInflight:
      return "inflight";
    case PutRefusal::kTooLarge:
      return "too_large";
  }
  return "";
}

void ChunkStore::CountAnswers(absl::Span<const PutAnswer> answers) {
  PutOutcomes counted;
  bool any = false;
  for (const PutAnswer& answer : answers) {
    if (answer.status == wire::CHUNK_DATA_LOSS) {
      ++counted.corrupt;
    } else if (answer.refusal != PutRefusal::kNone &&
               (answer.status == wire::CHUNK_RESOURCE_EXHAUSTED ||
                answer.status == wire::CHUNK_INVALID_ARGUMENT)) {
      ++counted.refused_by[static_cast<size_t>(answer.refusal)];
    } else {
      continue;
    }
    any = true;
  }
  if (!any) return;  // nearly always: the mutex is not taken
  MutexLock lock(mutex_);
  put_outcomes_.corrupt += counted.corrupt;
  for (size_t i = 0; i < counted.refused_by.size(); ++i) {
    put_outcomes_.refused_by[i] += counted.refused_by[i];
  }
}

PutOutcomes ChunkStore::put_outcomes() const {
  MutexLock lock(mutex_);
  return put_outcomes_;
}

uint64_t ChunkStore::NewBatch() {
  MutexLock lock(mutex_);
  return next_batch_++;
}

RoomNeeded ChunkStore::BeginPut(NamespaceIndex ns, absl::Span<const PutItem> items,
                                const PutOptions& options, absl::Time now,
                                absl::Span<PutAnswer> answers) {
  // So many at a time that a get need not wait long behind a batch of 32,768.
  constexpr size_t kItemsPerHold = 64;
  CISTERN_CHECK(answers.size() == items.size());
  RoomNeeded room;
  for (size_t begin = 0; begin < items.size(); begin += kItemsPerHold) {
    const size_t end = std::min(items.size(), begin + kItemsPerHold);
    {
      MutexLock lock(mutex_);
      CISTERN_CHECK(ns.value < namespaces_.size());
      uint64_t expiry = options.expiry_unix_ms;
      const uint64_t ttl = namespaces_[ns.value].record.options.ttl_ms();
      if (ttl != 0) {
        const uint64_t latest = ttl > UINT64_MAX - UnixMs(now) ? UINT64_MAX : UnixMs(now) + ttl;
        expiry = expiry == 0 ? latest : std::min(expiry, latest);
      }
      for (size_t i = begin; i < end; ++i) {
        CISTERN_CHECK(!answers[i].slot);
        answers[i].duplicate_of = PutAnswer::kNoDuplicate;
        BeginOneLocked(ns, items[i], options, expiry, now, &answers[i], &room);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      if (answers[i].slot && answers[i].slot.kept_key_ != nullptr) {
        answers[i].slot.KeepKey(items[i].key);
      }
    }
  }
  return room;
}

void ChunkStore::BeginOneLocked(NamespaceIndex ns, const PutItem& item, const PutOptions& options,
                                uint64_t expiry_unix_ms, absl::Time now, PutAnswer* answer,
                                RoomNeeded* room) {
  const wire::NamespaceOptions& ns_options = namespaces_[ns.value].record.options;
  if (options.replace && !ns_options.mutable_chunks()) {
    answer->status = wire::CHUNK_FAILED_PRECONDITION;
    return;
  }
  if (ns_options.keep_keys() && (item.key.empty() || item.key.size() > kMaxKeyBytes)) {
    answer->status = wire::CHUNK_INVALID_ARGUMENT;
    return;
  }
  const uint32_t writing = table_.Find(item.name, ChunkEntry::State::kWriting);
  if (writing != ChunkTable::kNone && !options.replace) {
    const ChunkEntry& e = table_.at(writing);
    if (options.batch != 0 && e.last_access_unix_s == static_cast<uint32_t>(options.batch) &&
        e.namespace_index() == ns.value) {
      answer->status = wire::CHUNK_OK;
      answer->duplicate_of = e.expiry_unix_s;
    } else {
      answer->status = wire::CHUNK_IN_PROGRESS;
    }
    return;
  }
  const uint32_t committed = table_.Find(item.name, ChunkEntry::State::kCommitted);
  if (committed != ChunkTable::kNone) {
    const ChunkEntry& e = table_.at(committed);
    if (e.namespace_index() != ns.value) {
      answer->status = wire::CHUNK_FAILED_PRECONDITION;
      return;
    }
    if (e.expiry_unix_s != 0 && e.expiry_unix_s <= absl::ToUnixSeconds(now)) {
      RemoveLocked(committed, wire::CAUSE_EXPIRED);
    } else if (!options.replace) {
      ++put_present_;
      answer->status = wire::CHUNK_PRESENT;
      return;
    }
  }
  const auto layout = PartLayout::Make(
      item.length, options.part_bytes != 0 ? options.part_bytes : ns_options.part_bytes());
  if (!layout.ok() || item.name.shard.value > Shard::kMax) {
    answer->status = wire::CHUNK_INVALID_ARGUMENT;
    return;
  }
  ReserveLocked(ns, item, options, expiry_unix_ms, *layout, answer, room);
}

void ChunkStore::ReserveLocked(NamespaceIndex ns, const PutItem& item, const PutOptions& options,
                               uint64_t expiry_unix_ms, const PartLayout& layout, PutAnswer* answer,
                               RoomNeeded* room) {
  const bool keep_key = namespaces_[ns.value].record.options.keep_keys();
  const uint64_t bytes =
      ExtentBytesFor(layout.length, layout.count, keep_key ? item.key.size() : 0);
  answer->status = wire::CHUNK_RESOURCE_EXHAUSTED;
  // A single chunk above the bound is let through alone, so that it can be put at all.
  if (inflight_bytes_ != 0 && inflight_bytes_ + bytes > options_.max_inflight_bytes) {
    answer->refusal = PutRefusal::kInflight;
    room->inflight = true;
    return;
  }
  SegmentState* best = nullptr;
  bool can_ever_fit = false;
  bool headers_short = false;
  for (const auto& state : segments_) {
    SegmentState& s = *state;
    if (s.draining) continue;
    can_ever_fit |= bytes <= s.extents.capacity_bytes();
    if (!s.extents.Fits(bytes)) continue;
    if (s.headers.full()) {
      headers_short = true;
    } else if ((best == nullptr || s.extents.free_bytes() > best->extents.free_bytes()) &&
               EnsureNamespaceSlotLocked(s, ns)) {
      best = &s;
    }
  }
  if (best == nullptr) {
    answer->refusal = headers_short ? PutRefusal::kHeaders : PutRefusal::kNoRoom;
    if (!can_ever_fit) {
      answer->refusal = PutRefusal::kTooLarge;
      answer->status = wire::CHUNK_INVALID_ARGUMENT;
      return;
    }
    room->bytes += bytes;
    room->extent_bytes = std::max(room->extent_bytes, bytes);
    room->headers |= headers_short;
    return;
  }
  const HeaderIndex header = *best->headers.Reserve();
  const Extent extent = *best->extents.Allocate(bytes);
  const uint32_t entry = best->first_entry + header.value;
  ChunkEntry& e = table_.at(entry);
  CISTERN_CHECK(e.state == ChunkEntry::State::kFree);
  e.set_name(item.name, ns.value);
  e.length = static_cast<uint32_t>(layout.length);
  e.state = ChunkEntry::State::kWriting;
  e.last_access_unix_s = static_cast<uint32_t>(options.batch);
  e.expiry_unix_s = item.index;
  best->NoteExtent(extent, entry);
  table_.Link(entry);
  inflight_bytes_ += extent.bytes;
  ++inflight_chunks_;
  ++namespaces_[ns.value].writing_count;

  PutSlot& slot = answer->slot;
  slot.store_ = this;
  slot.entry_ = entry;
  slot.namespace_index_ = ns;
  slot.name_ = item.name;
  slot.layout_ = layout;
  slot.extent_ = extent;
  slot.expiry_unix_ms_ = expiry_unix_ms;
  slot.mutation_ = namespaces_[ns.value].record.options.mutable_chunks() ? options.mutation : 0;
  slot.replace_ = options.replace;
  slot.payload_ = best->segment->At(extent.offset);
  slot.kept_key_ = keep_key ? slot.payload_ + KeptKeyOffset(layout.length, layout.count) : nullptr;
  slot.part_table_ =
      layout.count > 1
          ? reinterpret_cast<PartDigest*>(slot.payload_ + PartTableOffset(layout.length))
          : nullptr;
  answer->status = wire::CHUNK_OK;
}

absl::StatusOr<Version> ChunkStore::Commit(PutSlot slot, const CommitOptions& options,
                                           absl::Time now) {
  CISTERN_CHECK(slot.store_ == this);
  CommitOptions in_force = options;
  if (options.recheck && options.digest_kind != wire::DIGEST_NONE) {
    if (absl::Status status = CheckParts(slot); !status.ok()) {
      MutexLock lock(mutex_);
      ++verify_failures_;
      return status;
    }
    in_force.checked = true;
  }
  const uint64_t root = RootOf(slot, options.digest_kind);
  CISTERN_RETURN_IF_ERROR(versions_->Promise(1));
  if (CISTERN_FAULT("store.put.before_commit")) {
    versions_->Unpromise(1);
    return absl::UnavailableError("fault: store.put.before_commit");
  }
  MutexLock lock(mutex_);
  const Version version = CommitLocked(&slot, in_force, root, now);
  if (version.value == 0) return absl::AlreadyExistsError("a chunk of that name is there already");
  return version;
}

absl::Status ChunkStore::CommitBatch(absl::Span<PutSlot> slots, const CommitOptions& options,
                                     absl::Time now, absl::Span<Version> versions) {
  CISTERN_CHECK(versions.size() == slots.size() && !options.recheck);
  std::vector<uint64_t> roots(slots.size());
  uint64_t count = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    versions[i] = Version(0);
    if (!slots[i]) continue;
    roots[i] = RootOf(slots[i], options.digest_kind);
    ++count;
  }
  absl::Status status = count == 0 ? absl::OkStatus() : versions_->Promise(count);
  if (status.ok() && CISTERN_FAULT("store.put.before_commit")) {
    versions_->Unpromise(count);
    status = absl::UnavailableError("fault: store.put.before_commit");
  }
  if (!status.ok()) {
    for (PutSlot& slot : slots) slot.Abort();
    return status;
  }
  // One hold, so that no other put's records come between those of the batch.
  MutexLock lock(mutex_);
  for (size_t i = slots.size(); i-- > 0;) {
    if (slots[i]) versions[i] = CommitLocked(&slots[i], options, roots[i], now);
  }
  return absl::OkStatus();
}

Version ChunkStore::CommitLocked(PutSlot* slot, const CommitOptions& options, uint64_t root,
                                 absl::Time now) {
  const uint32_t replaced = table_.Find(slot->name_, ChunkEntry::State::kCommitted);
  if (replaced != ChunkTable::kNone &&
      (!slot->replace_ || table_.at(replaced).namespace_index() != slot->namespace_index_.value)) {
    // It came while this one was received: puts do not hinder a replace.
    versions_->Unpromise(1);
    AbortSlotLocked(slot);
    slot->store_ = nullptr;
    return Version(0);
  }
  const Version version = versions_->Next();
  const uint32_t now_s = static_cast<uint32_t>(UnixMs(now) / 1000);
  NamespaceState& ns = namespaces_[slot->namespace_index_.value];

  SegmentState& segment = SegmentOfLocked(slot->entry_);
  const HeaderIndex header = HeaderOf(segment, slot->entry_);
  HeaderFields f;
  f.name = slot->name_;
  f.namespace_id = ns.record.id;
  f.version = version;
  f.length = slot->layout_.length;
  f.extent = slot->extent_;
  f.root_digest = root;
  f.created_unix_ms = UnixMs(now);
  f.expiry_unix_ms = slot->expiry_unix_ms_;
  f.digest_kind = options.digest_kind;
  f.tenant_tag = ns.tenant_tag;
  f.part_bytes = slot->layout_.count > 1 ? static_cast<uint32_t>(slot->layout_.part_bytes) : 0;
  const bool single = slot->layout_.count == 1 && options.digest_kind != wire::DIGEST_NONE;
  f.single_part_digest = single ? slot->single_part_digest_ : 0;
  f.last_access_unix_s = now_s;
  f.mutation = slot->mutation_;
  f.flags = slot->kept_key_ != nullptr ? kHeaderFlagKeptKey : 0;
  segment.headers.Commit(header, f);
  if (options.checked) segment.headers.MarkVerified(header);
  // A killed process leaves both versions; the scan keeps the higher.
  if (replaced != ChunkTable::kNone) RemoveLocked(replaced, wire::CAUSE_REPLACED, true);

  ChunkEntry& e = table_.at(slot->entry_);
  e.set_version(version);
  e.refcount = 0;
  e.touched = false;
  e.last_access_unix_s = now_s;
  e.expiry_unix_s = f.expiry_unix_ms == 0 ? 0 : ExpirySeconds(f.expiry_unix_ms);
  e.state = ChunkEntry::State::kCommitted;
  table_.PushYoungest(slot->entry_);
  if (e.expiry_unix_s != 0) expiries_.Add(e.expiry_unix_s, {slot->entry_, version});

  inflight_bytes_ -= f.extent.bytes;
  --inflight_chunks_;
  --ns.writing_count;
  ++ns.chunk_count;
  ns.payload_bytes += f.length;
  committed_bytes_ += f.extent.bytes;
  payload_bytes_ += f.length;
  ++put_chunks_;
  put_bytes_ += f.length;
  slot->store_ = nullptr;

  Record record;
  record.name = f.name;
  record.version = version;
  record.length = e.length;
  record.expiry_unix_s = e.expiry_unix_s;
  record.namespace_index = e.namespace_index();
  record.tiers = wire::TIER_DRAM;
  record.cause = replaced != ChunkTable::kNone ? wire::CAUSE_REPLACED : wire::CAUSE_PUT;
  record.mutation = f.mutation;
  AppendRecordLocked(record);
  return version;
}

void ChunkStore::AbortSlot(PutSlot* slot) {
  MutexLock lock(mutex_);
  AbortSlotLocked(slot);
}

void ChunkStore::AbortSlotLocked(PutSlot* slot) {
  SegmentState& segment = SegmentOfLocked(slot->entry_);
  table_.Unlink(slot->entry_);
  segment.headers.Free(HeaderOf(segment, slot->entry_));
  inflight_bytes_ -= slot->extent_.bytes;
  --inflight_chunks_;
  --namespaces_[slot->namespace_index_.value].writing_count;
  RecycleLocked(slot->entry_, slot->extent_);
}

}  // namespace cistern::store
