// The administration part of MasterCore.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "master/evictor.h"
#include "master/master_core.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

ChunkView ViewOf(const PoolState& pool, EntryIndex e, MonoTime now) {
  const IndexEntry& entry = pool.index.at(e);
  ChunkView view;
  view.id = entry.id;
  view.shard = entry.shard();
  view.ns = entry.ns();
  view.length = entry.length;
  pool.index.ForEachReplica(e, [&](const ReplicaSlot& slot) {
    view.replicas.push_back({slot.store(), slot.tiers(), slot.version(), pool.stores.Readable(slot),
                             slot.evicting() != 0});
    return true;
  });
  view.lease_left = LeaseTable::kTick * entry.heat.lease_ticks_left(LeaseTable::TickOf(now));
  view.pinned = entry.heat.pinned();
  view.touched = entry.heat.touched();
  view.expiry_unix_s = entry.expiry_unix_s;
  return view;
}

bool MayGo(const Heat& heat, MonoTime now) {
  return !heat.pinned() && !heat.leased(LeaseTable::TickOf(now));
}

// The serving store whose oldest chunk is the oldest; null when every ring is empty.
Store* OldestStore(PoolState& pool, MonoTime now, const std::vector<StoreIndex>& skip) {
  Store* oldest = nullptr;
  MonoTime arrived = MonoTime::Infinite();
  for (auto& store : pool.stores.all()) {
    SessionCore* session = pool.SessionOf(*store);
    if (session == nullptr || !session->CanCommand() || store->dram().ring.empty()) continue;
    if (std::find(skip.begin(), skip.end(), store->index) != skip.end()) continue;
    const MonoTime t = OldestArrival(pool.index, store->dram(), store->index, kDram, now);
    if (t < arrived) {
      arrived = t;
      oldest = store.get();
    }
  }
  return oldest;
}

// By name, id in hex, or number.
absl::StatusOr<Store*> FindStore(PoolState& pool, std::string_view name) {
  std::vector<std::string> names;
  Store* found = nullptr;
  for (const auto& store : pool.stores.all()) {
    if (store->forgotten) continue;
    names.push_back(store->name);
    if (store->id.ToHex() == name || absl::StrCat(store->index.value) == name) return store.get();
    if (store->name != name) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("several stores are called '", store->name,
                                                     "': say which by its id or number"));
    }
    found = store.get();
  }
  if (found != nullptr) return found;
  return absl::NotFoundError(absl::StrCat("no store is called '", AbslView(name),
                                          "'; there are: ", absl::StrJoin(names, ", ")));
}

}  // namespace

PoolView MasterCore::Pool(MonoTime now) const {
  PoolView view;
  view.counters = pool_->counters;
  view.epoch = pool_->epoch;
  view.chunk_count = pool_->index.size();
  for (uint32_t i = 0; i < pool_->namespaces.size(); ++i) {
    view.payload_bytes += pool_->namespaces.at(NamespaceIndex(i)).payload_bytes;
  }
  view.active_leases = pool_->leases.live();
  view.leased_bytes = pool_->leases.charged_bytes();
  for (const auto& store : pool_->stores.all()) {
    if (pool_->stores.Placeable(*store)) view.lease_limit_bytes += pool_->LeaseLimit(store->index);
  }
  view.in_progress_puts = pool_->in_progress.size();
  view.pending_removals = static_cast<uint32_t>(pool_->removals.open());
  view.index_bytes = pool_->index.memory_bytes();
  for (const auto& store : pool_->stores.all()) {
    for (const TierState& tier : store->tiers) view.index_bytes += tier.ring.memory_bytes();
  }
  view.uptime = now - pool_->started;
  return view;
}

std::vector<StoreView> MasterCore::Stores(MonoTime now) const {
  std::vector<StoreView> out;
  for (const auto& store : pool_->stores.all()) {
    StoreView& v = out.emplace_back();
    v.index = store->index;
    v.id = store->id;
    v.name = store->name;
    v.software_version = store->software_version;
    v.state = store->state;
    v.incarnation = store->incarnation;
    v.endpoints = store->endpoints;
    v.heartbeat = store->heartbeat;
    v.segments = store->segments;
    v.chunk_count = store->chunk_count();
    for (const TierState& tier : store->tiers) {
      v.accounted_bytes += tier.bytes;
      v.evicting_bytes += tier.evicting_bytes;
    }
    v.placed_bytes = pool_->in_progress.placed_bytes(store->index);
    v.leased_bytes = pool_->leases.charged_bytes(store->index);
    v.lease_limit_bytes = pool_->LeaseLimit(store->index);
    v.oldest_age = now - OldestArrival(pool_->index, store->dram(), store->index, kDram, now);
    v.removed_by_cause = store->removed_by_cause;
  }
  return out;
}

std::vector<NamespaceView> MasterCore::Namespaces() const {
  std::vector<NamespaceView> out;
  for (uint32_t i = 0; i < pool_->namespaces.size(); ++i) {
    const NamespaceRegistry::Namespace& ns = pool_->namespaces.at(NamespaceIndex(i));
    if (!ns.named && ns.chunk_count == 0) continue;  // removed, and nothing is left of it
    out.push_back({NamespaceIndex(i), ns.info, ns.chunk_count, ns.payload_bytes, ns.counters});
  }
  return out;
}

PoolNumbers MasterCore::Numbers(MonoTime now) const {
  PoolNumbers out;
  out.pool = Pool(now);
  out.max_chunks = pool_->options.max_chunks;
  out.namespaces = pool_->namespaces.size();
  out.sweeps = pool_->sweeps.size();
  for (const auto& store : pool_->stores.all()) {
    ++out.stores_by_state[static_cast<size_t>(store->state)];
    out.placed_bytes += pool_->in_progress.placed_bytes(store->index);
    if (store->state == StoreState::kDead) continue;
    for (int t = 0; t < kTierCount; ++t) {
      const TierState& tier = store->tiers[t];
      PoolNumbers::Tier& sum = out.tiers[t];
      sum.capacity_bytes += tier.capacity_bytes;
      sum.used_bytes += tier.used_bytes();
      sum.chunks += tier.chunks;
      sum.evicting_bytes += tier.evicting_bytes;
    }
  }
  return out;
}

bool MasterCore::NamespacesFrom(uint32_t* next, size_t max, NamespaceView* others,
                                std::vector<NamespaceView>* out) const {
  const uint32_t end =
      std::min<uint32_t>(static_cast<uint32_t>(pool_->namespaces.size()), *next + kSliceKeys);
  for (; *next < end; ++*next) {
    const NamespaceRegistry::Namespace& ns = pool_->namespaces.at(NamespaceIndex(*next));
    if (!ns.named && ns.chunk_count == 0) continue;
    if (out->size() < max) {
      NamespaceView& view = out->emplace_back();
      view.index = NamespaceIndex(*next);
      view.info.set_name(ns.info.name());
      view.chunk_count = ns.chunk_count;
      view.payload_bytes = ns.payload_bytes;
      view.counters = ns.counters;
      continue;
    }
    others->chunk_count += ns.chunk_count;
    others->payload_bytes += ns.payload_bytes;
    others->counters.lookup_keys += ns.counters.lookup_keys;
    others->counters.lookup_hits += ns.counters.lookup_hits;
    others->counters.put_chunks += ns.counters.put_chunks;
    others->counters.put_bytes += ns.counters.put_bytes;
    others->counters.evicted_chunks += ns.counters.evicted_chunks;
  }
  return *next < pool_->namespaces.size();
}

void MasterCore::ListChunks(NamespaceIndex ns, uint64_t* page, uint32_t limit, MonoTime now,
                            std::vector<ChunkView>* out) const {
  const uint32_t end = pool_->index.entry_limit();
  uint64_t e = *page;
  for (uint32_t looks = 0; looks < kListSlice && limit > 0 && e < end; ++looks, ++e) {
    const EntryIndex entry(static_cast<uint32_t>(e));
    if (!pool_->index.InUse(entry)) continue;
    if (!ns.none() && pool_->index.at(entry).ns() != ns) continue;
    out->push_back(ViewOf(*pool_, entry, now));
    --limit;
  }
  *page = e < end ? e : 0;
}

absl::StatusOr<ChunkView> MasterCore::StatChunk(NamespaceIndex ns, const KeyId& id, Shard shard,
                                                MonoTime now) const {
  const EntryIndex entry = pool_->index.Find(id, shard);
  if (entry.none() || (!ns.none() && pool_->index.at(entry).ns() != ns)) {
    return absl::NotFoundError(absl::StrCat("no chunk ", id.ToHex(), " shard ", shard.value));
  }
  return ViewOf(*pool_, entry, now);
}

NamespaceIndex MasterCore::FindNamespace(std::string_view tenant, std::string_view name) const {
  return pool_->namespaces.FindByName(tenant, name);
}

bool MasterCore::InSession(SessionId session) const {
  const auto it = pool_->sessions.find(session);
  return it != pool_->sessions.end() && !it->second->ended();
}

absl::StatusOr<MasterCore::Commanded> MasterCore::QueueSegmentCommand(
    std::string_view name, const wire::SegmentCommand& command) {
  CISTERN_ASSIGN_OR_RETURN(Store* const store, FindStore(*pool_, name));
  SessionCore* const session = pool_->SessionOf(*store);
  if (session == nullptr || session->ended()) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", store->name, " is not in session with the master"));
  }
  if (!session->CanCommand()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("store ", store->name, " has not taken earlier commands yet; try again"));
  }
  session->QueueSegmentCommand(*pool_, command);
  return Commanded{session->id(), store->name};
}

MasterCore::Evicted MasterCore::EvictSlice(NamespaceIndex ns, uint64_t max_bytes, uint64_t* page,
                                           MonoTime now) {
  Evicted evicted;
  if (ns.none()) {
    // Some of the oldest of the store that has the oldest; then the caller comes again.
    std::vector<StoreIndex> skip;
    bool more = false;
    while (Store* store = OldestStore(*pool_, now, skip)) {
      const TierState& dram = store->dram();
      const uint64_t chunks = dram.evicting_chunks;
      const uint64_t bytes = dram.evicting_bytes;
      uint64_t some = std::min(max_bytes, 64 * std::max(dram.mean_chunk_bytes(), uint64_t{1}));
      more = EvictBytes(*pool_, *store, kDram, &some, wire::CAUSE_EVICT_ADMIN, now).more;
      evicted.chunks = dram.evicting_chunks - chunks;
      evicted.bytes = dram.evicting_bytes - bytes;
      if (evicted.chunks > 0 || more) break;
      skip.push_back(store->index);
    }
    *page = evicted.chunks > 0 || more ? 1 : 0;
    return evicted;
  }
  std::vector<std::vector<Victim>> victims(pool_->stores.all().size());
  const uint32_t end = pool_->index.entry_limit();
  uint64_t e = *page;
  for (uint32_t looks = 0;
       looks < kListSlice && evicted.chunks < kSliceKeys && evicted.bytes < max_bytes && e < end;
       ++looks, ++e) {
    const EntryIndex entry(static_cast<uint32_t>(e));
    if (!pool_->index.InUse(entry) || pool_->index.at(entry).ns() != ns) continue;
    if (!MayGo(pool_->index.at(entry).heat, now)) continue;
    bool marked = false;
    pool_->index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
      Store& store = *pool_->stores.at(slot.store());
      SessionCore* session = pool_->SessionOf(store);
      if (session == nullptr || !session->CanCommand()) return true;
      const Victim victim = MarkVictim(pool_->index, store, entry, kAllTiers);
      if (victim.tiers == 0) return true;
      victims[store.index.value].push_back(victim);
      marked = true;
      return true;
    });
    if (!marked) continue;
    ++evicted.chunks;
    evicted.bytes += ExtentBytesFor(pool_->index.at(entry).length);
  }
  *page = e < end ? e : 0;
  for (auto& store : pool_->stores.all()) {
    const std::vector<Victim>& of_store = victims[store->index.value];
    if (of_store.empty()) continue;
    pool_->SessionOf(*store)->QueueEvict(*pool_, of_store, kAllTiers, wire::CAUSE_EVICT_ADMIN);
  }
  return evicted;
}

absl::StatusOr<uint64_t> MasterCore::RemoveNamespace(std::string_view name) {
  const auto& stores = pool_->stores.all();
  const bool some_away = std::any_of(stores.begin(), stores.end(), [this](const auto& store) {
    return pool_->SessionOf(*store) == nullptr;
  });
  CISTERN_ASSIGN_OR_RETURN(const NamespaceIndex index,
                           pool_->namespaces.Remove("", name, /*remember=*/some_away));
  const NamespaceRegistry::Namespace& ns = pool_->namespaces.at(index);
  for (auto& [id, session] : pool_->sessions) session->QueueDropNamespace(*pool_, ns.id);
  return ns.chunk_count;
}

}  // namespace cistern::master
