// Work that goes over the whole index, and what time brings: in slices.
#ifndef CISTERN_MASTER_BACKGROUND_H_
#define CISTERN_MASTER_BACKGROUND_H_

#include <cstdint>

#include "base/clock.h"
#include "master/types.h"

namespace cistern::master {

struct PoolState;
struct ReleasedLease;

// Looks at `entries` more entries of the first sweep in the queue, fewer where many have to go.
// True when sweeps are left.
bool SweepSlice(PoolState& pool, uint32_t entries);

// Takes back kSliceKeys more of the victims of sessions that have ended. True when some are left.
bool RestoreKept(PoolState& pool, MonoTime now);
// Whether some of this store's are left.
bool HasKept(const PoolState& pool, StoreIndex store);

// Takes the lease off its next kSliceKeys entries. True when it is off all of them.
bool DropReleased(PoolState& pool, ReleasedLease& lease, MonoTime now);

// Clears the leases that have run out on the next `entries` entries, round and round: their time is
// a 24-bit serial number that must not come round again.
void ScrubLeases(PoolState& pool, uint32_t entries, MonoTime now);

// Stores that have been silent become suspect, then dead; those heard again serve again; those dead
// for forget_after have their entries swept.
void UpdateStoreStates(PoolState& pool, MonoTime now);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_BACKGROUND_H_
