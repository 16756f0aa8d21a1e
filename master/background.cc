#include "master/background.h"

#include <algorithm>

#include "master/pool_state.h"
#include "master/records.h"

namespace cistern::master {
namespace {

void FinishSweep(PoolState& pool, Store& store, SweepJob::Kind kind) {
  store.sweeping = false;
  store.parity_clean = true;
  store.hide_unmarked = false;
  if (kind == SweepJob::Kind::kForget) {
    store.forgotten = true;
    // What was written anew meanwhile is not known any more.
    Distrust(store, pool.MutationsEnd());
  }
  pool.stores.Publish(store);
  pool.stores.TouchDirectory();
}

// True when it had to be dropped.
bool SweepEntry(PoolState& pool, Store& store, SweepJob::Kind kind, EntryIndex entry) {
  if (!pool.index.InUse(entry)) return false;
  ReplicaSlot* slot = pool.index.FindReplica(entry, store.index);
  if (slot == nullptr) return false;
  if (kind == SweepJob::Kind::kAlignParity) {
    slot->set_parity(store.parity);
    return false;
  }
  if (kind != SweepJob::Kind::kForget && slot->parity() == store.parity) return false;
  DropReplica(pool, store, entry, wire::CAUSE_NONE);
  return true;
}

StoreState StateBySilence(const PoolState& pool, const Store& store, MonoTime now) {
  const absl::Duration silent = now - store.last_heard;
  if (silent >= pool.options.dead_after) return StoreState::kDead;
  if (silent >= pool.options.suspect_after) return StoreState::kSuspect;
  return store.resumable ? StoreState::kServing : StoreState::kSyncing;
}

}  // namespace

bool SweepSlice(PoolState& pool, uint32_t entries) {
  if (pool.sweeps.empty()) return false;
  SweepJob& job = pool.sweeps.front();
  Store& store = *pool.stores.at(job.store);
  const uint32_t limit = pool.index.entry_limit();
  const uint32_t end = limit - job.next_entry < entries ? limit : job.next_entry + entries;
  uint32_t dropped = 0;
  for (; job.next_entry < end && dropped < kSliceKeys; ++job.next_entry) {
    dropped += SweepEntry(pool, store, job.kind, EntryIndex(job.next_entry)) ? 1 : 0;
  }
  if (job.next_entry == limit) {
    FinishSweep(pool, store, job.kind);
    pool.sweeps.pop_front();
  }
  return !pool.sweeps.empty();
}

bool RestoreKept(PoolState& pool, MonoTime now) {
  // A command counts as a look too: one may have none left.
  for (uint32_t looks = 0; looks < kSliceKeys && !pool.kept.empty(); ++looks) {
    KeptVictims& kept = pool.kept.front();
    Store& store = *pool.stores.at(kept.store);
    if (!kept.commands.empty()) {
      EvictCommand& command = kept.commands.front();
      for (; looks < kSliceKeys && command.settled < command.victims.size(); ++looks) {
        RestoreVictim(pool, store, command.victims[command.settled++], now);
      }
      if (command.settled == command.victims.size()) kept.commands.pop_front();
    }
    if (kept.commands.empty()) pool.kept.pop_front();
  }
  return !pool.kept.empty();
}

bool HasKept(const PoolState& pool, StoreIndex store) {
  return std::any_of(pool.kept.begin(), pool.kept.end(),
                     [store](const KeptVictims& kept) { return kept.store == store; });
}

bool DropReleased(PoolState& pool, ReleasedLease& lease, MonoTime now) {
  const uint32_t now_tick = LeaseTable::TickOf(now);
  // Once its time has passed, entries no longer count it (they may be under later leases).
  if (now_tick >= lease.until_tick) return true;
  const size_t end = std::min(lease.entries.size(), lease.next + kSliceKeys);
  for (; lease.next < end; ++lease.next) {
    const LeasedEntry& leased = lease.entries[lease.next];
    if (!pool.index.InUse(leased.entry)) continue;
    IndexEntry& entry = pool.index.at(leased.entry);
    // Another chunk may have the entry by now; its leases are not this one's to end.
    if (entry.replicas[0].version_low() == leased.version_low) entry.heat.DropLease(now_tick);
  }
  return end == lease.entries.size();
}

void ScrubLeases(PoolState& pool, uint32_t entries, MonoTime now) {
  const uint32_t limit = pool.index.entry_limit();
  const uint32_t now_tick = LeaseTable::TickOf(now);
  for (uint32_t i = 0; i < std::min(entries, limit); ++i) {
    if (pool.scrub_entry >= limit) pool.scrub_entry = 0;
    const EntryIndex e(pool.scrub_entry++);
    if (!pool.index.InUse(e)) continue;
    Heat& heat = pool.index.at(e).heat;
    if (heat.leases() > 0 && !heat.leased(now_tick)) heat.ClearLease();
  }
}

void UpdateStoreStates(PoolState& pool, MonoTime now) {
  for (auto& owned : pool.stores.all()) {
    Store& store = *owned;
    if (store.session.value == 0) {
      const bool due = now - store.dead_since >= pool.options.forget_after;
      if (due && !store.forgotten && !store.sweeping) {
        store.sweeping = true;
        store.resumable = false;
        pool.sweeps.push_back({SweepJob::Kind::kForget, store.index, 0});
      }
      continue;
    }
    const StoreState state = StateBySilence(pool, store, now);
    if (state == store.state) continue;
    store.state = state;
    pool.stores.Publish(store);
    pool.stores.TouchDirectory();
  }
}

}  // namespace cistern::master
