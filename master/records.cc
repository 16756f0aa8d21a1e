#include "master/records.h"

#include <algorithm>
#include <vector>

#include "master/pool_state.h"

namespace cistern::master {
namespace {

bool IsEviction(wire::Cause cause) {
  return cause == wire::CAUSE_EVICT_WATERMARK || cause == wire::CAUSE_EVICT_ASKED ||
         cause == wire::CAUSE_EVICT_SELF || cause == wire::CAUSE_EVICT_ADMIN;
}

// The store has it in these tiers from now on: counts and puts it into their rings.
void CountIn(Store& store, EntryIndex entry, ReplicaSlot slot, TierMask tiers, uint32_t length,
             MonoTime now) {
  for (int t = 0; t < kTierCount; ++t) {
    if ((tiers >> t & 1) == 0) continue;
    TierState& tier = store.tiers[t];
    tier.bytes += ExtentBytesFor(length);
    ++tier.chunks;
    tier.ring.PushYoung(entry, slot.version_low(), now);
  }
}

void CountOut(Store& store, ReplicaSlot slot, TierMask tiers, uint32_t length) {
  for (int t = 0; t < kTierCount; ++t) {
    if ((tiers >> t & 1) == 0) continue;
    TierState& tier = store.tiers[t];
    tier.bytes -= ExtentBytesFor(length);
    --tier.chunks;
    if ((slot.evicting() >> t & 1) != 0) {
      tier.evicting_bytes -= ExtentBytesFor(length);
      --tier.evicting_chunks;
    }
  }
}

bool AddNewChunk(PoolState& pool, Store& store, const Record& r, ReplicaSlot slot, MonoTime now) {
  const EntryIndex entry = pool.index.Insert(r.id, r.shard, r.ns, r.length, r.expiry_unix_s, slot);
  if (entry.none()) return false;
  pool.namespaces.AddChunk(r.ns, r.length);
  CountIn(store, entry, slot, r.tiers, r.length, now);
  pool.evicted.Remove(r.id, r.shard);
  return true;
}

// A later state of a replica that is known.
bool ChangeReplica(PoolState& pool, Store& store, EntryIndex e, ReplicaSlot* known,
                   ReplicaSlot slot, const Record& r, MonoTime now) {
  IndexEntry& entry = pool.index.at(e);
  if (r.version < known->version()) return true;
  if (r.version == known->version()) {
    const TierMask gained = r.tiers & static_cast<TierMask>(~known->tiers());
    const TierMask lost = known->tiers() & static_cast<TierMask>(~r.tiers);
    CountOut(store, *known, lost, entry.length);
    slot.set_evicting(known->evicting() & r.tiers);
    *known = slot;
    CountIn(store, e, slot, gained, entry.length, now);
    return true;
  }
  // Replaced (mutable namespaces), or dropped and put again where the record between was lost.
  if (r.length != entry.length && !entry.replicas[1].none()) return false;
  const ReplicaSlot before = *known;
  CountOut(store, before, before.tiers(), entry.length);
  pool.removals.Reported(store.index, before.version());
  if (r.length != entry.length) {
    pool.namespaces.RemoveChunk(entry.ns(), entry.length);
    pool.namespaces.AddChunk(entry.ns(), r.length);
    entry.length = r.length;
  }
  entry.expiry_unix_s = r.expiry_unix_s;
  *known = slot;
  CountIn(store, e, slot, r.tiers, r.length, now);
  return true;
}

// The store's own copy is older than what another store has.
void DropStale(PoolState& pool, Store& store, const ChunkName& name, Version version) {
  ++pool.counters.stale_mutable;
  SessionCore* session = pool.SessionOf(store);
  if (session != nullptr) session->AddStale(name, version);
}

bool ApplyMutable(PoolState& pool, Store& store, const Record& r, ReplicaSlot slot, EntryIndex e,
                  MonoTime now) {
  const ChunkName name{r.id, r.shard};
  if (r.mutation < store.distrust_below) {
    DropStale(pool, store, name, r.version);
    return true;
  }
  if (!e.none()) {
    if (pool.index.at(e).ns() != r.ns) return false;
    if (ReplicaSlot* known = pool.index.FindReplica(e, store.index); known != nullptr) {
      const bool later = r.version >= known->version();
      if (!ChangeReplica(pool, store, e, known, slot, r, now)) return false;
      if (later) pool.mutations[e] = r.mutation;
      return true;
    }
    const auto current = pool.mutations.find(e);
    if (current != pool.mutations.end() && r.mutation <= current->second) {
      DropStale(pool, store, name, r.version);
      return true;
    }
    // This one is newer: no reader is to be sent to the others again.
    std::vector<StoreIndex> others;
    pool.index.ForEachReplica(e, [&](const ReplicaSlot& other) {
      others.push_back(other.store());
      return true;
    });
    for (const StoreIndex index : others) {
      Store& other = *pool.stores.at(index);
      DropStale(pool, other, name, pool.index.FindReplica(e, index)->version());
      if (pool.SessionOf(other) == nullptr) Distrust(other, r.mutation);
      DropReplica(pool, other, e, wire::CAUSE_REPLACED);
    }
  }
  if (!AddNewChunk(pool, store, r, slot, now)) return false;
  pool.mutations[pool.index.Find(r.id, r.shard)] = r.mutation;
  return true;
}

bool ApplyPresent(PoolState& pool, Store& store, const Record& r, MonoTime now) {
  pool.in_progress.End(ChunkName{r.id, r.shard});
  const ReplicaSlot slot = ReplicaSlot::Make(store.index, r.tiers, store.parity, r.version);
  const EntryIndex e = pool.index.Find(r.id, r.shard);
  if (pool.IsMutable(r.ns)) return ApplyMutable(pool, store, r, slot, e, now);
  if (e.none()) return AddNewChunk(pool, store, r, slot, now);
  IndexEntry& entry = pool.index.at(e);
  if (entry.ns() != r.ns) return false;
  if (ReplicaSlot* known = pool.index.FindReplica(e, store.index); known != nullptr) {
    return ChangeReplica(pool, store, e, known, slot, r, now);
  }
  if (entry.length != r.length || !pool.index.AddReplica(e, slot)) return false;
  // As long as one replica lives the chunk does.
  const bool forever = entry.expiry_unix_s == 0 || r.expiry_unix_s == 0;
  entry.expiry_unix_s = forever ? 0 : std::max(entry.expiry_unix_s, r.expiry_unix_s);
  CountIn(store, e, slot, r.tiers, r.length, now);
  return true;
}

}  // namespace

void Distrust(Store& store, uint64_t mutation) {
  store.distrust_below = std::max(store.distrust_below, mutation);
  store.distrusted = true;
  store.resumable = false;
}

void DropReplica(PoolState& pool, Store& store, EntryIndex e, wire::Cause cause) {
  const IndexEntry& entry = pool.index.at(e);
  const ReplicaSlot slot = *pool.index.FindReplica(e, store.index);
  const KeyId id = entry.id;
  const Shard shard = entry.shard();
  const NamespaceIndex ns = entry.ns();
  const uint32_t length = entry.length;
  CountOut(store, slot, slot.tiers(), length);
  pool.removals.Reported(store.index, slot.version());
  if (static_cast<size_t>(cause) < store.removed_by_cause.size()) {
    ++store.removed_by_cause[cause];
    ++pool.counters.removed_by_cause[cause];
  }
  if (!pool.index.RemoveReplica(e, store.index)) return;
  pool.mutations.erase(e);
  pool.namespaces.RemoveChunk(ns, length);
  if (!IsEviction(cause)) return;
  pool.evicted.Add(id, shard);
  ++pool.namespaces.counters(ns).evicted_chunks;
}

bool ApplyRecord(PoolState& pool, Store& store, const Record& record, MonoTime now) {
  ++pool.counters.records_applied;
  if (record.tiers != 0) {
    if (ApplyPresent(pool, store, record, now)) return true;
    ++pool.counters.records_refused;
    return false;
  }
  const EntryIndex e = pool.index.Find(record.id, record.shard);
  if (e.none()) return true;
  const ReplicaSlot* known = pool.index.FindReplica(e, store.index);
  if (known == nullptr || known->version() > record.version) return true;
  DropReplica(pool, store, e, record.cause);
  return true;
}

}  // namespace cistern::master
