// ChunkStore: references to chunks and the checking of their bytes.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/status.h"
#include "store/chunk_store.h"

namespace cistern::store {
namespace {

// A header says 0 where the chunk is one part, however large its parts were meant to be.
PartLayout LayoutOf(const HeaderFields& f) {
  PartLayout layout;
  layout.length = f.length;
  layout.part_bytes =
      f.part_bytes != 0 ? f.part_bytes : std::max(kMinPartBytes, std::bit_ceil(f.length));
  layout.count = static_cast<uint32_t>((f.length + layout.part_bytes - 1) / layout.part_bytes);
  return layout;
}

bool BytesMatch(const ChunkRef& ref) {
  const PartLayout& layout = ref.layout();
  const absl::Span<const PartDigest> digests = ref.part_digests();
  if (RootDigest(digests, layout.length, ref.name()) != ref.root()) return false;
  for (uint32_t i = 0; i < layout.count; ++i) {
    if (DigestOf(ref.payload().data() + layout.PartBegin(i), layout.PartBytes(i)) != digests[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

ChunkRef& ChunkRef::operator=(ChunkRef&& other) noexcept {
  if (this == &other) return *this;
  Release();
  store_ = std::exchange(other.store_, nullptr);
  entry_ = other.entry_;
  name_ = other.name_;
  layout_ = other.layout_;
  extent_bytes_ = other.extent_bytes_;
  payload_ = other.payload_;
  part_table_ = other.part_table_;
  single_part_digest_ = other.single_part_digest_;
  root_ = other.root_;
  version_ = other.version_;
  digest_kind_ = other.digest_kind_;
  verified_ = other.verified_;
  return *this;
}

void ChunkRef::Release() {
  if (store_ != nullptr) std::exchange(store_, nullptr)->ReleaseRef(entry_);
}

std::optional<HeaderFields> ChunkStore::SoundHeaderLocked(uint32_t entry) const {
  const ChunkEntry& e = table_.at(entry);
  const SegmentState& segment = SegmentOfLocked(entry);
  const HeaderIndex header = HeaderOf(segment, entry);
  const HeaderFields f = segment.headers.Read(header);
  if (!segment.headers.Sound(header) || f.name != e.name() || f.version != e.version() ||
      f.length != e.length) {
    return std::nullopt;
  }
  return f;
}

ChunkRef ChunkStore::MakeRefLocked(uint32_t entry) {
  ChunkEntry& e = table_.at(entry);
  SegmentState& segment = SegmentOfLocked(entry);
  const HeaderIndex header = HeaderOf(segment, entry);
  const std::optional<HeaderFields> sound = SoundHeaderLocked(entry);
  if (!sound.has_value()) {
    ++verify_failures_;
    RemoveLocked(entry, wire::CAUSE_CORRUPT);
    return {};
  }
  const HeaderFields& f = *sound;
  ++e.refcount;
  ++references_;
  ChunkRef ref;
  ref.store_ = this;
  ref.entry_ = entry;
  ref.name_ = f.name;
  ref.layout_ = LayoutOf(f);
  ref.extent_bytes_ = f.extent.bytes;
  ref.payload_ = segment.segment->At(f.extent.offset);
  ref.part_table_ =
      ref.layout_.count > 1
          ? reinterpret_cast<const PartDigest*>(ref.payload_ + PartTableOffset(f.length))
          : nullptr;
  ref.single_part_digest_ = f.single_part_digest;
  ref.root_ = f.root_digest;
  ref.version_ = f.version;
  ref.digest_kind_ = f.digest_kind;
  ref.verified_ = segment.headers.verified(header);
  return ref;
}

ChunkRef ChunkStore::AcquireLocked(NamespaceIndex ns, const ChunkName& name, absl::Time now) {
  const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
  if (entry == ChunkTable::kNone) return {};
  ChunkEntry& e = table_.at(entry);
  const int64_t now_s = absl::ToUnixSeconds(now);
  if (e.namespace_index() != ns.value || (e.expiry_unix_s != 0 && e.expiry_unix_s <= now_s)) {
    return {};
  }
  e.touched = true;
  e.shard_and_flags |= ChunkEntry::kEverRead;
  e.last_access_unix_s = static_cast<uint32_t>(now_s);
  SegmentState& segment = SegmentOfLocked(entry);
  segment.headers.Touch(HeaderOf(segment, entry), e.last_access_unix_s);
  return MakeRefLocked(entry);
}

ChunkRef ChunkStore::Acquire(NamespaceIndex ns, const ChunkName& name, absl::Time now) {
  ChunkRef ref;
  AcquireMany(ns, {&name, 1}, now, {&ref, 1});
  return ref;
}

size_t ChunkStore::AcquireMany(NamespaceIndex ns, absl::Span<const ChunkName> names, absl::Time now,
                               absl::Span<ChunkRef> refs) {
  constexpr size_t kNamesPerHold = 64;
  CISTERN_CHECK(refs.size() == names.size());
  for (ChunkRef& ref : refs) ref.Release();
  size_t found = 0;
  for (size_t begin = 0; begin < names.size(); begin += kNamesPerHold) {
    const size_t end = std::min(names.size(), begin + kNamesPerHold);
    MutexLock lock(mutex_);
    for (size_t i = begin; i < end; ++i) {
      refs[i] = AcquireLocked(ns, names[i], now);
      if (refs[i]) {
        ++found;
        ++get_hits_;
      } else {
        ++get_misses_;
      }
    }
  }
  return found;
}

std::vector<ChunkRef> ChunkStore::Hold(NamespaceIndex ns, absl::Span<const ChunkName> names) {
  std::vector<ChunkRef> refs;
  refs.reserve(names.size());
  for (const ChunkName& name : names) {
    MutexLock lock(mutex_);
    const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
    if (entry == ChunkTable::kNone || table_.at(entry).namespace_index() != ns.value) continue;
    refs.push_back(MakeRefLocked(entry));
  }
  return refs;
}

bool ChunkStore::Contains(NamespaceIndex ns, const ChunkName& name, absl::Time now) const {
  MutexLock lock(mutex_);
  const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
  if (entry == ChunkTable::kNone) return false;
  const ChunkEntry& e = table_.at(entry);
  return e.namespace_index() == ns.value &&
         (e.expiry_unix_s == 0 || e.expiry_unix_s > absl::ToUnixSeconds(now));
}

void ChunkStore::ReleaseRef(uint32_t entry) {
  MutexLock lock(mutex_);
  ChunkEntry& e = table_.at(entry);
  CISTERN_CHECK(e.refcount > 0);
  --e.refcount;
  --references_;
  if (e.refcount != 0 || e.state != ChunkEntry::State::kUnlinked) return;
  RecycleLocked(entry, ExtentOfLocked(entry));
}

absl::Status ChunkStore::Verify(const ChunkRef& ref) {
  CISTERN_CHECK(ref.store_ == this);
  if (ref.digest_kind() == wire::DIGEST_NONE) return absl::OkStatus();
  const bool sound = BytesMatch(ref);
  MutexLock lock(mutex_);
  const ChunkEntry& e = table_.at(ref.entry_);
  // The reference keeps the entry from being used again, so it is still this chunk's.
  if (sound) {
    SegmentState& segment = SegmentOfLocked(ref.entry_);
    if (e.state == ChunkEntry::State::kCommitted) {
      segment.headers.MarkVerified(HeaderOf(segment, ref.entry_));
    }
    return absl::OkStatus();
  }
  ++verify_failures_;
  if (e.state == ChunkEntry::State::kCommitted) RemoveLocked(ref.entry_, wire::CAUSE_CORRUPT);
  return absl::DataLossError("the stored bytes do not match their digest");
}

absl::Status ChunkStore::VerifyOnce(const ChunkRef& ref) {
  CISTERN_CHECK(ref.store_ == this);
  {
    MutexLock lock(mutex_);
    if (table_.at(ref.entry_).state == ChunkEntry::State::kCommitted &&
        SegmentOfLocked(ref.entry_)
            .headers.verified(HeaderOf(SegmentOfLocked(ref.entry_), ref.entry_))) {
      return absl::OkStatus();
    }
  }
  return Verify(ref);
}

uint32_t ChunkStore::FindLocked(NamespaceIndex ns, const ChunkName& name, Version version) const {
  const uint32_t entry = table_.Find(name, ChunkEntry::State::kCommitted);
  if (entry == ChunkTable::kNone) return ChunkTable::kNone;
  const ChunkEntry& e = table_.at(entry);
  const bool right =
      e.namespace_index() == ns.value && (version.value == 0 || e.version() == version);
  return right ? entry : ChunkTable::kNone;
}

uint64_t ChunkStore::LengthOf(NamespaceIndex ns, const ChunkName& name, Version version) const {
  MutexLock lock(mutex_);
  const uint32_t entry = FindLocked(ns, name, version);
  return entry == ChunkTable::kNone ? 0 : table_.at(entry).length;
}

wire::ChunkStatus ChunkStore::ReportBad(NamespaceIndex ns, const ChunkName& name, Version version) {
  ChunkRef ref;
  {
    MutexLock lock(mutex_);
    const uint32_t entry = FindLocked(ns, name, version);
    if (entry == ChunkTable::kNone) return wire::CHUNK_NOT_FOUND;
    ref = MakeRefLocked(entry);
  }
  if (!ref) return wire::CHUNK_DATA_LOSS;
  return Verify(ref).ok() ? wire::CHUNK_OK : wire::CHUNK_DATA_LOSS;
}

}  // namespace cistern::store
