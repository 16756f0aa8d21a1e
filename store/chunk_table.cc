#include "store/chunk_table.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"

namespace cistern::store {
namespace {

size_t EntryBytes(uint32_t capacity) {
  return RoundUp(std::max<uint64_t>(capacity, 1) * sizeof(ChunkEntry), 4096);
}

ChunkEntry* MapEntries(uint32_t capacity) {
  void* p = mmap(nullptr, EntryBytes(capacity), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CISTERN_CHECK(p != MAP_FAILED);
  return static_cast<ChunkEntry*>(p);
}

uint32_t* CallocBuckets(size_t n) {
  void* p = std::calloc(n, sizeof(uint32_t));
  CISTERN_CHECK(p != nullptr);
  return static_cast<uint32_t*>(p);
}

// One round of multiply-and-fold (as in wyhash): with a secret seed nobody can aim at a bucket.
uint64_t Mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

void ChunkTable::Unmapper::operator()(ChunkEntry* p) const { munmap(p, bytes); }

ChunkTable::ChunkTable(uint32_t capacity, uint64_t seed)
    : capacity_(capacity),
      seed_(seed),
      entries_(MapEntries(capacity), Unmapper{EntryBytes(capacity)}),
      bucket_mask_(std::bit_ceil(std::max<size_t>(capacity, 1)) - 1) {
  CISTERN_CHECK(capacity < kNone);
  buckets_.reset(CallocBuckets(bucket_mask_ + 1));
}

void ChunkTable::Grow(uint32_t capacity) {
  CISTERN_CHECK(capacity > capacity_ && capacity < kNone && old_buckets_ == nullptr);
  const size_t old_bytes = entries_.get_deleter().bytes;
  const size_t bytes = EntryBytes(capacity);
  if (bytes > old_bytes) {
    // The kernel moves the pages' addresses, not their bytes; what is new reads as zero.
    void* p = mremap(entries_.get(), old_bytes, bytes, MREMAP_MAYMOVE);
    CISTERN_CHECK(p != MAP_FAILED);
    (void)entries_.release();
    entries_ = Entries(static_cast<ChunkEntry*>(p), Unmapper{bytes});
  }
  capacity_ = capacity;
  const size_t mask = std::bit_ceil(size_t{capacity}) - 1;
  if (mask == bucket_mask_) return;
  old_buckets_ = std::exchange(buckets_, Buckets(CallocBuckets(mask + 1)));
  old_mask_ = std::exchange(bucket_mask_, mask);
  rehashed_ = 0;
}

bool ChunkTable::Rehash(size_t buckets) {
  if (old_buckets_ == nullptr) return false;
  const size_t end = std::min(rehashed_ + buckets, old_mask_ + 1);
  while (rehashed_ < end) {
    uint32_t link = old_buckets_[rehashed_++];  // from here on its names belong to the new array
    while (link != 0) {
      const uint32_t entry = link - 1;
      link = entries_[entry].hash_next;
      Link(entry);
    }
  }
  if (rehashed_ <= old_mask_) return true;
  old_buckets_.reset();
  return false;
}

void ChunkTable::Discard(uint32_t first, uint32_t count) {
  // Whole pages between the neighbours' entries.
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = RoundUp(first * sizeof(ChunkEntry), page);
  const uint64_t end = (uint64_t{first} + count) * sizeof(ChunkEntry) / page * page;
  if (begin >= end) return;
  (void)madvise(reinterpret_cast<char*>(entries_.get()) + begin, end - begin, MADV_DONTNEED);
}

uint64_t ChunkTable::HashOf(const ChunkName& name) const {
  const uint64_t first = Mix(name.id.word(0) ^ seed_, name.id.word(1) ^ 0x9E3779B97F4A7C15u);
  return Mix(first ^ name.shard.value, seed_ ^ 0xD1B54A32D192ED03u);
}

uint32_t& ChunkTable::BucketOf(const ChunkName& name) const {
  const uint64_t hash = HashOf(name);
  if (old_buckets_ != nullptr && (hash & old_mask_) >= rehashed_) {
    return old_buckets_[hash & old_mask_];
  }
  return buckets_[hash & bucket_mask_];
}

uint32_t ChunkTable::Find(const ChunkName& name, ChunkEntry::State state) const {
  uint32_t link = BucketOf(name);
  while (link != 0) {
    const ChunkEntry& e = entries_[link - 1];
    if (e.id == name.id && e.name().shard == name.shard && e.state == state) return link - 1;
    link = e.hash_next;
  }
  return kNone;
}

void ChunkTable::Link(uint32_t entry) {
  uint32_t& bucket = BucketOf(entries_[entry].name());
  entries_[entry].hash_next = bucket;
  bucket = entry + 1;
}

void ChunkTable::Unlink(uint32_t entry) {
  uint32_t* link = &BucketOf(entries_[entry].name());
  while (*link != entry + 1) {
    CISTERN_CHECK(*link != 0);
    link = &entries_[*link - 1].hash_next;
  }
  *link = entries_[entry].hash_next;
  entries_[entry].hash_next = 0;
}

void ChunkTable::PushYoungest(uint32_t entry) {
  ChunkEntry& e = entries_[entry];
  e.older = youngest_;
  e.younger = kNone;
  (youngest_ == kNone ? oldest_ : entries_[youngest_].younger) = entry;
  youngest_ = entry;
  ++listed_count_;
}

void ChunkTable::RemoveFromList(uint32_t entry) {
  const ChunkEntry& e = entries_[entry];
  (e.older == kNone ? oldest_ : entries_[e.older].younger) = e.younger;
  (e.younger == kNone ? youngest_ : entries_[e.younger].older) = e.older;
  --listed_count_;
}

}  // namespace cistern::store
