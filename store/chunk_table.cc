#include "store/chunk_table.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace cistern::store {
namespace {

template <typename T>
T* Calloc(size_t n) {
  void* p = std::calloc(n, sizeof(T));
  CISTERN_CHECK(p != nullptr);
  return static_cast<T*>(p);
}

// One round of multiply-and-fold (as in wyhash): with a secret seed nobody can aim at a bucket.
uint64_t Mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

ChunkTable::ChunkTable(uint32_t capacity, uint64_t seed)
    : capacity_(capacity),
      seed_(seed),
      entries_(Calloc<ChunkEntry>(std::max<size_t>(capacity, 1))),
      bucket_mask_(std::bit_ceil(std::max<size_t>(capacity, 1)) - 1) {
  CISTERN_CHECK(capacity < kNone);
  buckets_.reset(Calloc<uint32_t>(bucket_mask_ + 1));
}

size_t ChunkTable::BucketOf(const ChunkName& name) const {
  const uint64_t first = Mix(name.id.word(0) ^ seed_, name.id.word(1) ^ 0x9E3779B97F4A7C15u);
  return Mix(first ^ name.shard.value, seed_ ^ 0xD1B54A32D192ED03u) & bucket_mask_;
}

uint32_t ChunkTable::Find(const ChunkName& name, ChunkEntry::State state) const {
  uint32_t link = buckets_[BucketOf(name)];
  while (link != 0) {
    const ChunkEntry& e = entries_[link - 1];
    if (e.id == name.id && e.name().shard == name.shard && e.state == state) return link - 1;
    link = e.hash_next;
  }
  return kNone;
}

void ChunkTable::Link(uint32_t entry) {
  uint32_t& bucket = buckets_[BucketOf(entries_[entry].name())];
  entries_[entry].hash_next = bucket;
  bucket = entry + 1;
}

void ChunkTable::Unlink(uint32_t entry) {
  uint32_t* link = &buckets_[BucketOf(entries_[entry].name())];
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
