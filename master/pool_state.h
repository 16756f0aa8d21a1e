// Everything the master holds, as one aggregate that its operations (files of one job each) share.
#ifndef CISTERN_MASTER_POOL_STATE_H_
#define CISTERN_MASTER_POOL_STATE_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "master/admin_views.h"
#include "master/evicted_sketch.h"
#include "master/evictor.h"
#include "master/in_progress_table.h"
#include "master/index.h"
#include "master/lease_table.h"
#include "master/master_options.h"
#include "master/namespaces.h"
#include "master/removals.h"
#include "master/session_core.h"
#include "master/store_table.h"

namespace cistern::master {

// A pass over the whole index, done in slices (background.h).
struct SweepJob {
  enum class Kind {
    kRemoveUnmarked,  // after a snapshot: what it did not show is gone
    kAlignParity,     // after a snapshot that was cut: every replica gets the store's mark
    kForget,          // the store has been dead for too long
  };
  Kind kind;
  StoreIndex store;
  uint32_t next_entry = 0;
};

// A lease that was ended early, while its entries are told.
struct ReleasedLease {
  uint32_t until_tick = 0;
  size_t next = 0;
  std::vector<LeasedEntry> entries;
};

// Commands of a session that has ended: its store may not have heard of them.
struct KeptVictims {
  StoreIndex store;
  std::deque<EvictCommand> commands;
};

struct PoolState {
  PoolState(const MasterOptions& o, StateStore& state)
      : options(o),
        index({o.max_chunks, o.hash_seed}),
        namespaces(state, o.max_namespaces),
        leases({o.max_leases, o.random_bytes}),
        in_progress({o.in_progress, o.max_in_progress}) {}

  const MasterOptions options;
  Index index;
  NamespaceRegistry namespaces;
  StoreTable stores;
  LeaseTable leases;
  InProgressTable in_progress;
  RemovalTracker removals;
  EvictedSketch evicted;
  PoolCounters counters;

  Epoch epoch;
  absl::Status fenced;
  MonoTime started;
  // Leases of the master before this one may live until then: no eviction unless a store asks.
  MonoTime quiet_until;
  uint32_t wall_unix_s = 0;

  wire::PartitionMap map;
  absl::flat_hash_map<SessionId, std::unique_ptr<SessionCore>> sessions;
  uint64_t next_session = 1;
  std::deque<SweepJob> sweeps;
  std::deque<ReleasedLease> released;
  std::deque<KeptVictims> kept;  // to be taken back
  // Mutable namespaces: the last number given to a placement, and the number of the placement by
  // which each of their chunks came to its store.
  uint64_t last_mutation = 0;
  absl::flat_hash_map<EntryIndex, uint64_t> mutations;
  size_t next_evict = 0;     // whose turn it is to be looked at by EvictInTurn
  bool evict_more = false;   // there was more to do in the last turn
  uint32_t scrub_entry = 0;  // the slow pass that clears run-out leases goes on here

  // The session of a store; null when it has none.
  SessionCore* SessionOf(const Store& store) {
    auto it = sessions.find(store.session);
    return it == sessions.end() ? nullptr : it->second.get();
  }
  // Counts up over restarts too: the epoch is above the counter. 2^36 placements of one master's
  // life: 79 days of 10,000 a second.
  static constexpr int kMutationCounterBits = 36;
  uint64_t NextMutation() { return last_mutation = MutationsEnd(); }
  // Greater than any given so far, by this master or one before it.
  uint64_t MutationsEnd() const {
    return std::max(last_mutation, epoch.value << kMutationCounterBits) + 1;
  }
  bool IsMutable(NamespaceIndex ns) const {
    return namespaces.at(ns).info.options().mutable_chunks();
  }
  // What has expired is gone for every caller, also before its store has said so.
  bool Expired(EntryIndex entry) const {
    const uint32_t expiry = index.at(entry).expiry_unix_s;
    return expiry != 0 && expiry <= wall_unix_s;
  }
  // Can a reader be sent to some replica of it? False for no entry.
  bool Readable(EntryIndex entry) const {
    bool found = false;
    if (entry.none() || Expired(entry)) return false;
    index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
      found = stores.Readable(slot);
      return !found;
    });
    return found;
  }
  uint64_t LeaseLimit(StoreIndex store) const {
    const Store* s = stores.at(store);
    return s == nullptr ? 0
                        : static_cast<uint64_t>(options.lease_share *
                                                static_cast<double>(s->dram().capacity_bytes));
  }
  // What the tier will hold once everything placed has come and everything told to go has gone.
  uint64_t ProjectedBytes(const Store& store, int tier) const {
    const TierState& t = store.tiers[tier];
    const uint64_t coming =
        t.used_bytes() + (tier == 0 ? in_progress.placed_bytes(store.index) : 0);
    return coming > t.evicting_bytes ? coming - t.evicting_bytes : 0;
  }
  uint64_t ProjectedChunks(const Store& store, int tier) const {
    const TierState& t = store.tiers[tier];
    const uint64_t coming = t.chunks + (tier == 0 ? in_progress.placed_chunks(store.index) : 0);
    return coming > t.evicting_chunks ? coming - t.evicting_chunks : 0;
  }
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_POOL_STATE_H_
