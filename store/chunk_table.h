// The store's in-memory table of chunks: by name, and by order of arrival.
#ifndef CISTERN_STORE_CHUNK_TABLE_H_
#define CISTERN_STORE_CHUNK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/ids.h"

namespace cistern::store {

// An entry belongs to one header of one segment for good (entry number = the segment's first number
// + header index), so it names neither. What is read once per transfer (extent, digest, namespace
// id) stays in the header.
//
// Memory per header: 56 bytes of entry, touched only once the header is used, and 4 bytes of bucket
// at a load between 0.5 and 1: 60 to 64 bytes.
struct ChunkEntry {
  enum class State : uint8_t {
    kFree = 0,
    kWriting = 1,    // a put in progress: found by name, not by readers
    kCommitted = 2,  // in the arrival list
    kUnlinked = 3,   // removed; the extent is kept for its readers
  };

  KeyId id;
  uint64_t version_and_namespace;  // version: low 40 bits; namespace index: high 24
  uint32_t length;
  uint32_t refcount;
  uint32_t last_access_unix_s;  // put or read; while writing: low half of the batch number
  uint32_t expiry_unix_s;       // 0 = none; while writing: the item's index in its batch
  uint32_t hash_next;           // entry + 1; 0 = end of the chain
  uint32_t older;
  uint32_t younger;
  uint16_t shard_and_flags;  // shard: low 12 bits; kEverRead
  State state;
  bool touched;  // read since the evictor last looked

  static constexpr uint16_t kEverRead = 1 << 12;

  ChunkName name() const { return {id, Shard(shard_and_flags & Shard::kMax)}; }
  Version version() const { return Version(version_and_namespace & Version::kMax); }
  uint32_t namespace_index() const { return static_cast<uint32_t>(version_and_namespace >> 40); }
  void set_version(Version v) {
    version_and_namespace = (version_and_namespace & ~Version::kMax) | v.value;
  }
  void set_name(const ChunkName& n, uint32_t namespace_index) {
    id = n.id;
    shard_and_flags = n.shard.value;
    version_and_namespace = uint64_t{namespace_index} << 40;
  }
};
static_assert(sizeof(ChunkEntry) == 56);

// A hash table over a dense array whose entries keep their numbers for good (Grow may move them in
// memory: no reference outlives it), and an intrusive list of committed entries from oldest to
// youngest. The hash is mixed with a random seed, so that
// crafted ids cannot build long chains.
//
// Not thread-safe: ChunkStore calls it under its mutex.
class ChunkTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  // `capacity` = headers of all segments, below 2^32 - 1.
  ChunkTable(uint32_t capacity, uint64_t seed);

  // Makes room for entries up to `capacity`, which is above the present one and below 2^32 - 1.
  // Takes microseconds; the buckets move later, as Rehash is called. Precondition: no rehash is
  // under way.
  void Grow(uint32_t capacity);
  // Moves up to `buckets` of the buckets that Grow has made too few. False when none is left.
  bool Rehash(size_t buckets);
  // Gives the memory of entries [first, first + count) back. Precondition: all are free.
  void Discard(uint32_t first, uint32_t count);

  uint32_t capacity() const { return capacity_; }
  ChunkEntry& at(uint32_t entry) { return entries_[entry]; }
  const ChunkEntry& at(uint32_t entry) const { return entries_[entry]; }

  // The committed (or, of several, one writing) entry of that name; kNone when there is none. At
  // most one is committed.
  uint32_t Find(const ChunkName& name, ChunkEntry::State state) const;
  // Enters an entry whose name is set, in front of its chain. Precondition: not entered.
  void Link(uint32_t entry);
  void Unlink(uint32_t entry);

  // For walks: a name is in the bucket of its hash, whether Rehash has moved it yet or not. Grow
  // changes the count: the names of bucket b are then in b and in buckets behind it, so a walk from
  // the first to the last still sees each name that stays (some twice, where Grow comes between).
  size_t bucket_count() const { return bucket_mask_ + 1; }
  template <typename Fn>  // fn(entry number); must not change the table
  void ForEachInBucket(size_t bucket, Fn&& fn) const {
    if (old_buckets_ == nullptr || (bucket & old_mask_) < rehashed_) {
      for (uint32_t next = buckets_[bucket]; next != 0; next = entries_[next - 1].hash_next) {
        fn(next - 1);
      }
      return;
    }
    for (uint32_t next = old_buckets_[bucket & old_mask_]; next != 0;
         next = entries_[next - 1].hash_next) {
      if ((HashOf(entries_[next - 1].name()) & bucket_mask_) == bucket) fn(next - 1);
    }
  }

  // The arrival list.
  void PushYoungest(uint32_t entry);
  void RemoveFromList(uint32_t entry);
  uint32_t oldest() const { return oldest_; }
  uint32_t listed_count() const { return listed_count_; }

 private:
  struct FreeDeleter {
    void operator()(void* p) const { std::free(p); }
  };
  struct Unmapper {
    size_t bytes = 0;
    void operator()(ChunkEntry* p) const;
  };
  using Entries = std::unique_ptr<ChunkEntry[], Unmapper>;
  using Buckets = std::unique_ptr<uint32_t[], FreeDeleter>;
  uint64_t HashOf(const ChunkName& name) const;
  // The head of the chain that `name` belongs to.
  uint32_t& BucketOf(const ChunkName& name) const;

  uint32_t capacity_;
  const uint64_t seed_;
  // Pages of both are backed only when touched.
  Entries entries_;
  Buckets buckets_;  // entry + 1; 0 = empty
  size_t bucket_mask_ = 0;
  // During a rehash: the smaller array, of which the buckets from rehashed_ on still count.
  Buckets old_buckets_;
  size_t old_mask_ = 0;
  size_t rehashed_ = 0;
  uint32_t oldest_ = kNone;
  uint32_t youngest_ = kNone;
  uint32_t listed_count_ = 0;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_CHUNK_TABLE_H_
