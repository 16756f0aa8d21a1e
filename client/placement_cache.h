// Which store holds which chunk, as far as this process knows.
//
// A hint: a store that does not have the chunk says so, and the caller asks the master then. So
// entries need no invalidation; they end because gets that never ask the master also never tell it
// that a chunk is in use.
#ifndef CISTERN_CLIENT_PLACEMENT_CACHE_H_
#define CISTERN_CLIENT_PLACEMENT_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace cistern {

// This process's own dense number of a store: unlike the master's index it never changes its
// meaning, whatever master answers. See StoreTable.
struct LocalStore : StrongInt<struct LocalStoreTag, uint16_t> {
  static constexpr uint16_t kNone = 0xFFFF;
  using StrongInt::StrongInt;
  bool known() const { return value != kNone; }
};

// A chunk's first two replicas; kNone where there is none.
struct Placement {
  std::array<LocalStore, 2> stores = {LocalStore(LocalStore::kNone), LocalStore(LocalStore::kNone)};
};

// Bounded: 8-way sets of 16-byte entries, two cache lines; a full set loses the entry that ends
// first. An entry knows its chunk by 64 bits of a keyed hash of id and shard: once in 10^13 looks
// it is another's, and the hint wrong. Memory is touched only as it is used; where there is none to
// be had it knows nothing, and remembers nothing. Thread-safe. A batch costs one lock and one look
// at the clock for each 64 names, whose sets are fetched from memory all at once.
class PlacementCache {
  struct Entry;
  // Where a name is, if it is there.
  struct Place {
    Entry* ways;
    uint64_t tag;
  };

 public:
  static constexpr size_t kBatch = 64;

  struct Options {
    size_t capacity = size_t{1} << 20;  // rounded up to a power of two, at least 1,024
    uint64_t seed = 0;                  // mixes ids, which come from outside and can be crafted
    Clock* clock = &Clock::Real();
  };
  explicit PlacementCache(const Options& options);
  ~PlacementCache();

  // Remembers placements, in batches. Not thread-safe; writes the rest when destroyed.
  class Writer {
   public:
    Writer(PlacementCache* cache, absl::Duration lifetime);
    ~Writer() { Flush(); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;
    void Add(const ChunkName& name, const Placement& placement) {
      if (cache_.entries_ == nullptr) return;
      if (used_ == kBatch) Flush();
      places_[used_] = cache_.Fetch(name);
      placements_[used_++] = placement;
    }

   private:
    void Flush();
    PlacementCache& cache_;
    const uint32_t now_;
    const uint32_t expires_;
    size_t used_ = 0;
    std::array<Place, kBatch> places_;
    std::array<Placement, kBatch> placements_;
  };

  // Fills (*out)[i] for names[i]; stores[0] is kNone where nothing is known.
  void Get(absl::Span<const ChunkName> names, std::vector<Placement>* out) const;
  void Drop(const ChunkName& name);

 private:
  static constexpr size_t kWays = 8;

  // Asked for from memory.
  Place Fetch(const ChunkName& name) const;
  uint32_t Tick(absl::Duration ahead) const;
  void PutInSet(const Place& place, const Placement& placement, uint32_t now, uint32_t expires)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t seed_;
  Clock& clock_;
  const MonoTime start_;
  const size_t set_count_;
  // set_count_ x kWays, mapped; what it points to is guarded. Null: no memory.
  Entry* const entries_;
  mutable Mutex mutex_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PLACEMENT_CACHE_H_
