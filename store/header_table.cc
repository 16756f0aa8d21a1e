#include "store/header_table.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "base/status.h"

namespace cistern::store {
namespace {

constexpr size_t kBodyBegin = offsetof(ChunkHeader, key_id);
constexpr size_t kBodyEnd = offsetof(ChunkHeader, last_access_unix_s);
constexpr uint32_t kTouchIntervalS = 60;

HeaderFields ToFields(const ChunkHeader& h) {
  HeaderFields f;
  f.name = {KeyId::FromBytes(h.key_id), Shard(h.shard)};
  f.namespace_id = NamespaceId::FromBytes(h.namespace_id);
  f.version = Version(h.version);
  f.length = h.payload_length;
  f.extent = {h.payload_offset, uint64_t{h.extent_units} * Extent::kAlignment};
  f.root_digest = h.root_digest;
  f.created_unix_ms = h.created_unix_ms;
  f.expiry_unix_ms = h.expiry_unix_ms;
  f.digest_kind = static_cast<wire::DigestKind>(h.digest_kind);
  f.flags = h.flags;
  f.tenant_tag = h.tenant_tag;
  f.part_bytes = h.part_bytes;
  f.single_part_digest = h.single_part_digest;
  f.mutation = h.mutation;
  f.last_access_unix_s = h.last_access_unix_s;
  return f;
}

ChunkHeader ToImage(const HeaderFields& f, uint64_t word) {
  ChunkHeader h{};
  h.word = word;
  std::memcpy(h.key_id, f.name.id.bytes.data(), sizeof(h.key_id));
  std::memcpy(h.namespace_id, f.namespace_id.bytes.data(), sizeof(h.namespace_id));
  h.version = f.version.value;
  h.payload_offset = f.extent.offset;
  h.payload_length = f.length;
  h.root_digest = f.root_digest;
  h.created_unix_ms = f.created_unix_ms;
  h.expiry_unix_ms = f.expiry_unix_ms;
  h.extent_units = static_cast<uint32_t>(f.extent.bytes / Extent::kAlignment);
  h.shard = f.name.shard.value;
  h.digest_kind = static_cast<uint8_t>(f.digest_kind);
  h.flags = f.flags;
  h.tenant_tag = f.tenant_tag;
  h.part_bytes = f.part_bytes;
  h.single_part_digest = f.single_part_digest;
  h.mutation = f.mutation;
  h.crc32c = HeaderCrc(h);
  return h;
}

// Whether a header whose CRC is right makes sense in a segment with that payload. The CRC keeps out
// torn and rotten headers; this keeps out what a later or a foolish program wrote.
bool Sensible(const ChunkHeader& h, const Extent& payload) {
  if (h.payload_length < kMinChunkBytes || h.payload_length > kMaxChunkBytes) return false;
  uint64_t parts = 1;
  if (h.part_bytes != 0) {
    if (h.part_bytes < kMinPartBytes || !std::has_single_bit(h.part_bytes)) return false;
    parts = (h.payload_length + h.part_bytes - 1) / h.part_bytes;
    if (parts < 2 || parts > kMaxParts) return false;
  }
  const uint64_t extent_bytes = uint64_t{h.extent_units} * Extent::kAlignment;
  return h.payload_offset % Extent::kAlignment == 0 && h.payload_offset >= payload.offset &&
         h.payload_offset < payload.end() && extent_bytes <= payload.end() - h.payload_offset &&
         extent_bytes >= ExtentBytesFor(h.payload_length, static_cast<uint32_t>(parts),
                                        /*kept_key_bytes=*/h.flags & kHeaderFlagKeptKey) &&
         h.version != 0 && h.version <= Version::kMax && h.shard <= Shard::kMax &&
         wire::DigestKind_IsValid(h.digest_kind) && (h.flags & ~kHeaderFlagKeptKey) == 0;
}

}  // namespace

uint32_t HeaderCrc(const ChunkHeader& header) {
  return Crc32c(reinterpret_cast<const char*>(&header) + kHeaderCrcBegin,
                kHeaderCrcEnd - kHeaderCrcBegin);
}

HeaderTable::HeaderTable(absl::Span<ChunkHeader> headers) : headers_(headers) {}

uint64_t HeaderTable::LoadWord(uint32_t index) const {
  return std::atomic_ref<uint64_t>(headers_[index].word).load(std::memory_order_acquire);
}

void HeaderTable::StoreWord(uint32_t index, uint64_t word) {
  std::atomic_ref<uint64_t>(headers_[index].word).store(word, std::memory_order_release);
}

std::optional<HeaderIndex> HeaderTable::Reserve() {
  uint32_t index = 0;
  if (!recycled_.empty()) {
    index = recycled_.back();
    recycled_.pop_back();
  } else if (fresh_ < count()) {
    index = fresh_++;
  } else {
    return std::nullopt;
  }
  ++used_;
  StoreWord(index, PackHeaderWord(HeaderState::kWriting, HeaderWordGeneration(LoadWord(index))));
  return HeaderIndex(index);
}

void HeaderTable::Commit(HeaderIndex index, const HeaderFields& fields) {
  ChunkHeader& header = headers_[index.value];
  const uint64_t word = LoadWord(index.value);
  const ChunkHeader image = ToImage(fields, word);
  std::memcpy(reinterpret_cast<char*>(&header) + kBodyBegin,
              reinterpret_cast<const char*>(&image) + kBodyBegin, kBodyEnd - kBodyBegin);
  std::atomic_ref<uint32_t>(header.last_access_unix_s)
      .store(fields.last_access_unix_s, std::memory_order_relaxed);
  (void)CISTERN_FAULT("store.header.filled");
  OrderStores();
  StoreWord(index.value, PackHeaderWord(HeaderState::kCommitted, HeaderWordGeneration(word)));
  (void)CISTERN_FAULT("store.header.committed");
}

void HeaderTable::Free(HeaderIndex index) {
  const uint32_t generation = HeaderWordGeneration(LoadWord(index.value)).value;
  StoreWord(index.value, PackHeaderWord(HeaderState::kFree, Generation(generation + 1)));
}

void HeaderTable::Recycle(HeaderIndex index) {
  CISTERN_CHECK(used_ > 0);
  --used_;
  recycled_.push_back(index.value);
}

void HeaderTable::MarkVerified(HeaderIndex index) {
  const uint64_t word = LoadWord(index.value);
  if (HeaderWordState(word) != HeaderState::kCommitted) return;
  StoreWord(index.value, PackHeaderWord(HeaderState::kVerified, HeaderWordGeneration(word)));
}

bool HeaderTable::verified(HeaderIndex index) const {
  return HeaderWordState(LoadWord(index.value)) == HeaderState::kVerified;
}

void HeaderTable::Touch(HeaderIndex index, uint32_t unix_s) {
  std::atomic_ref<uint32_t> stored(headers_[index.value].last_access_unix_s);
  const uint32_t last = stored.load(std::memory_order_relaxed);
  if (unix_s >= last && unix_s - last < kTouchIntervalS) return;
  stored.store(unix_s, std::memory_order_relaxed);
}

Generation HeaderTable::generation(HeaderIndex index) const {
  return HeaderWordGeneration(LoadWord(index.value));
}

HeaderFields HeaderTable::Read(HeaderIndex index) const { return ToFields(headers_[index.value]); }

bool HeaderTable::Sound(HeaderIndex index) const {
  const ChunkHeader& header = headers_[index.value];
  return header.crc32c == HeaderCrc(header);
}

HeaderTable::ScanCounts HeaderTable::Scan(const Extent& payload, std::vector<Found>* found) {
  ScanCounts counts;
  recycled_.clear();
  used_ = 0;
  fresh_ = 0;
  for (uint32_t i = 0; i < count(); ++i) {
    if (LoadWord(i) != 0) fresh_ = i + 1;
  }
  counts.free = count() - fresh_;
  // From the end, so that the lowest index is reserved first.
  for (uint32_t i = fresh_; i-- > 0;) {
    const uint64_t word = LoadWord(i);
    const HeaderState state = HeaderWordState(word);
    if (HeaderWordIsOurs(word) && state == HeaderState::kFree) {
      ++counts.free;
      recycled_.push_back(i);
      continue;
    }
    if (HeaderWordIsOurs(word) &&
        (state == HeaderState::kCommitted || state == HeaderState::kVerified) &&
        headers_[i].crc32c == HeaderCrc(headers_[i]) && Sensible(headers_[i], payload)) {
      ++counts.committed;
      ++used_;
      found->push_back({HeaderIndex(i), ToFields(headers_[i]), state == HeaderState::kVerified});
      // What an earlier process checked says nothing about the memory of today.
      StoreWord(i, PackHeaderWord(HeaderState::kCommitted, HeaderWordGeneration(word)));
      continue;
    }
    ++(HeaderWordIsOurs(word) && state == HeaderState::kWriting ? counts.writing : counts.damaged);
    Free(HeaderIndex(i));
    recycled_.push_back(i);
  }
  return counts;
}

ResolvedScan ResolveScan(std::vector<ScannedHeader> scanned) {
  // The highest version first: whatever collides with something kept is the one to go. Equal
  // versions are none of ours; then the lower position stays, so that the outcome is always the
  // same.
  std::sort(scanned.begin(), scanned.end(), [](const ScannedHeader& a, const ScannedHeader& b) {
    if (a.found.fields.version != b.found.fields.version) {
      return a.found.fields.version > b.found.fields.version;
    }
    if (a.segment != b.segment) return a.segment < b.segment;
    return a.found.index < b.found.index;
  });
  ResolvedScan result;
  std::vector<absl::btree_map<uint64_t, uint64_t>> extents;  // per segment: offset -> end
  absl::flat_hash_set<ChunkName> names;
  for (ScannedHeader& s : scanned) {
    const HeaderFields& f = s.found.fields;
    if (extents.size() <= s.segment) extents.resize(s.segment + 1);
    auto& taken = extents[s.segment];
    const auto right = taken.lower_bound(f.extent.offset);
    const bool overlaps = (right != taken.end() && right->first < f.extent.end()) ||
                          (right != taken.begin() && std::prev(right)->second > f.extent.offset);
    if (names.contains(f.name)) {
      ++result.duplicate;
      result.dropped.push_back(std::move(s));
    } else if (overlaps) {
      ++result.overlapping;
      result.dropped.push_back(std::move(s));
    } else {
      names.insert(f.name);
      taken.emplace(f.extent.offset, f.extent.end());
      result.kept.push_back(std::move(s));
    }
  }
  std::reverse(result.kept.begin(), result.kept.end());
  return result;
}

}  // namespace cistern::store
