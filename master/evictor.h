// Chooses what a store shall drop, and tells it.
#ifndef CISTERN_MASTER_EVICTOR_H_
#define CISTERN_MASTER_EVICTOR_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "master/types.h"
#include "proto/store.pb.h"

namespace cistern::master {

struct PoolState;
struct Store;
struct TierState;
class Index;

// A replica that its store is told to drop from one or more tiers.
struct Victim {
  EntryIndex entry;
  Version version;
  TierMask tiers = 0;
};

// At most this many victims a call, and looks for them, so that the lock is not held for long: the
// caller comes back.
inline constexpr uint32_t kMaxVictims = 128;
inline constexpr uint32_t kMaxLooks = 512;

// What one call did of a hunt: the search for victims in a tier, of which there may be many calls.
//
// It takes the oldest of the tier's ring that may go until there are enough. Touched ones (the bit
// is then cleared), leased and pinned ones go back to the young end. After 4 x (chunks to evict) +
// 1,024 looks touched ones are taken too; after as many again the hunt is given up. The victims are
// marked as being evicted and counted so.
struct HuntStep {
  size_t told = 0;   // victims
  size_t looks = 0;  // at chunks
  // Not enough yet, and not given up: call again, soon. Never without a look.
  bool more = false;

  HuntStep& operator+=(const HuntStep& other) {
    told += other.told;
    looks += other.looks;
    more = more || other.more;
    return *this;
  }
};

// Marks one replica as told to go, where it is not yet. Precondition: it is there.
Victim MarkVictim(Index& index, Store& store, EntryIndex entry, TierMask tiers);

// Undoes the mark of a victim that the store has kept: it takes its place at the old end again.
// Harmless when the replica has changed or gone.
void RestoreVictim(PoolState& pool, Store& store, const Victim& victim, MonoTime now);

// Commands what brings the store's projected use (bytes and headers) from above the high watermark
// to the low one.
HuntStep EvictToWatermark(PoolState& pool, Store& store, MonoTime now);

// The same for the stores in turn, from where the last call has stopped.
HuntStep EvictInTurn(PoolState& pool, MonoTime now);

// Commands `bytes` (counts down by what was).
HuntStep EvictBytes(PoolState& pool, Store& store, TierMask tier, uint64_t* bytes,
                    wire::Cause cause, MonoTime now);

// The arrival of the oldest chunk of the ring that is still there; `now` for an empty one.
MonoTime OldestArrival(const Index& index, TierState& tier, StoreIndex store, TierMask mask,
                       MonoTime now);

// One page of ring compaction where stale items have piled up. True when more of it is due.
bool CompactRings(PoolState& pool);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_EVICTOR_H_
