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
#include <memory>
#include <optional>

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

// Bounded: 8-way sets of 32-byte entries; a full set loses the entry that ends first. Memory is
// touched only as it is used. Thread-safe: a few locks, each over its own share of the sets.
class PlacementCache {
 public:
  struct Options {
    size_t capacity = size_t{1} << 20;  // rounded up to a power of two, at least 1,024
    uint64_t seed = 0;                  // mixes ids, which come from outside and can be crafted
    Clock* clock = &Clock::Real();
  };
  explicit PlacementCache(const Options& options);
  ~PlacementCache();

  void Put(const ChunkName& name, const Placement& placement, absl::Duration lifetime);
  std::optional<Placement> Get(const ChunkName& name) const;
  void Drop(const ChunkName& name);

 private:
  struct Entry;
  struct Set;
  static constexpr size_t kWays = 8;
  static constexpr size_t kLocks = 16;

  size_t SetOf(const ChunkName& name) const;
  uint32_t Tick(absl::Duration ahead) const;

  const uint64_t seed_;
  Clock& clock_;
  const MonoTime start_;
  const size_t set_count_;
  Entry* entries_;                             // set_count_ x kWays, from calloc
  mutable std::array<Mutex, kLocks> mutexes_;  // set s belongs to s % kLocks
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PLACEMENT_CACHE_H_
