#include "master/evictor.h"

#include <algorithm>

#include "master/pool_state.h"

namespace cistern::master {
namespace {

// The replica that a ring item stands for; null when it has gone, changed or is being evicted.
const ReplicaSlot* Current(const Index& index, const EvictionRing::Item& item, StoreIndex store,
                           TierMask mask) {
  if (!index.InUse(item.entry)) return nullptr;
  const ReplicaSlot* found =
      const_cast<Index&>(index).FindReplica(item.entry, store);  // the ring changes nothing in it
  if (found == nullptr || found->version_low() != item.version_low) return nullptr;
  return (found->readable_tiers() & mask) != 0 ? found : nullptr;
}

void CountEvicting(TierState& tier, uint32_t length) {
  tier.evicting_bytes += ExtentBytesFor(length);
  ++tier.evicting_chunks;
}

// Looks ahead by so many items, whose entries are fetched from memory all at once.
constexpr uint32_t kFetched = 16;

// What is in `placed` is being replaced: room for its new bytes is not to be had from the old ones,
// which stay if the replace comes to nothing.
std::vector<Victim> Hunt(Index& index, TierState& tier, StoreIndex store, TierMask mask,
                         uint64_t bytes, uint64_t chunks, const InProgressTable& placed,
                         MonoTime now, HuntStep* step) {
  std::vector<Victim> victims;
  const uint32_t now_tick = LeaseTable::TickOf(now);
  const uint64_t mean = std::max<uint64_t>(tier.mean_chunk_bytes(), 1);
  const uint64_t to_evict = std::max(chunks, (bytes + mean - 1) / mean);
  const uint64_t patience = 4 * std::min<uint64_t>(to_evict, kMaxVictims) + 1024;
  uint64_t got_bytes = 0;
  const auto enough = [&] { return got_bytes >= bytes && victims.size() >= chunks; };
  const auto given_up = [&] { return tier.ring.empty() || tier.hunt_looks >= 2 * patience; };
  uint32_t looks = 0;
  for (; looks < kMaxLooks && victims.size() < kMaxVictims && !enough() && !given_up(); ++looks) {
    if (looks % kFetched == 0) {
      tier.ring.ForOldest(kFetched, [&index](EntryIndex entry) { index.Fetch(entry); });
    }
    const bool patient = tier.hunt_looks++ < patience;
    const EvictionRing::Item item = tier.ring.PopOldest();
    const ReplicaSlot* slot = Current(index, item, store, mask);
    if (slot == nullptr) continue;
    IndexEntry& entry = index.at(item.entry);
    const bool held = entry.heat.leased(now_tick) || entry.heat.pinned();
    if (held || (entry.heat.touched() && patient)) {
      if (!held) entry.heat.ClearTouched();
      tier.ring.PushYoung(item.entry, item.version_low, now);
      continue;
    }
    if (placed.Find({entry.id, entry.shard()}, now) != nullptr) {
      tier.ring.PushYoung(item.entry, item.version_low, now);
      continue;
    }
    const_cast<ReplicaSlot*>(slot)->set_evicting(slot->evicting() | mask);
    CountEvicting(tier, entry.length);
    got_bytes += ExtentBytesFor(entry.length);
    victims.push_back(Victim{item.entry, slot->version(), mask});
  }
  step->more = step->more || (!enough() && !given_up());
  step->looks += looks;
  step->told += victims.size();
  // The next one, for the rest or at another time, has its patience anew.
  if (enough() || given_up() || victims.size() >= kMaxVictims) tier.hunt_looks = 0;
  return victims;
}

}  // namespace

Victim MarkVictim(Index& index, Store& store, EntryIndex entry, TierMask tiers) {
  ReplicaSlot* slot = index.FindReplica(entry, store.index);
  const TierMask fresh = slot->readable_tiers() & tiers;
  slot->set_evicting(slot->evicting() | fresh);
  for (int t = 0; t < kTierCount; ++t) {
    if ((fresh >> t & 1) != 0) CountEvicting(store.tiers[t], index.at(entry).length);
  }
  return Victim{entry, slot->version(), fresh};
}

void RestoreVictim(PoolState& pool, Store& store, const Victim& victim, MonoTime now) {
  if (!pool.index.InUse(victim.entry)) return;
  ReplicaSlot* slot = pool.index.FindReplica(victim.entry, store.index);
  if (slot == nullptr || slot->version() != victim.version) return;
  const TierMask back = slot->evicting() & victim.tiers;
  slot->set_evicting(slot->evicting() & static_cast<TierMask>(~back));
  for (int t = 0; t < kTierCount; ++t) {
    if ((back >> t & 1) == 0) continue;
    TierState& tier = store.tiers[t];
    tier.evicting_bytes -= ExtentBytesFor(pool.index.at(victim.entry).length);
    --tier.evicting_chunks;
    const MonoTime arrived = tier.ring.empty() ? now : tier.ring.Oldest().arrived;
    tier.ring.PushOld({victim.entry, slot->version_low(), arrived});
  }
}

HuntStep EvictToWatermark(PoolState& pool, Store& store, MonoTime now) {
  HuntStep step;
  SessionCore* session = pool.SessionOf(store);
  if (session == nullptr || !session->CanCommand() || now < pool.quiet_until) return step;
  for (int t = 0; t < kTierCount; ++t) {
    TierState& tier = store.tiers[t];
    if (tier.capacity_bytes == 0) continue;
    const auto over = [&](uint64_t projected, uint64_t limit) -> uint64_t {
      const auto high = static_cast<uint64_t>(pool.options.high_watermark * limit);
      const auto low = static_cast<uint64_t>(pool.options.low_watermark * limit);
      // A hunt that has begun goes on to the low one.
      return limit > 0 && projected > (tier.hunt_looks > 0 ? low : high) ? projected - low : 0;
    };
    const uint64_t bytes = over(pool.ProjectedBytes(store, t), tier.capacity_bytes);
    const uint64_t chunks = over(pool.ProjectedChunks(store, t), tier.header_count);
    if (bytes == 0 && chunks == 0) {
      tier.hunt_looks = 0;
      continue;
    }
    const TierMask mask = static_cast<TierMask>(1 << t);
    const auto victims =
        Hunt(pool.index, tier, store.index, mask, bytes, chunks, pool.in_progress, now, &step);
    session->QueueEvict(pool, victims, mask, wire::CAUSE_EVICT_WATERMARK);
  }
  return step;
}

// A turn ends when enough was told to go, or looked at: the rest is for the next call.
HuntStep EvictInTurn(PoolState& pool, MonoTime now) {
  HuntStep sum;
  const auto& stores = pool.stores.all();
  for (size_t i = 0; i < stores.size() && sum.told < kMaxVictims && sum.looks < kMaxLooks; ++i) {
    pool.next_evict = (pool.next_evict + 1) % stores.size();
    sum += EvictToWatermark(pool, *stores[pool.next_evict], now);
  }
  return sum;
}

HuntStep EvictBytes(PoolState& pool, Store& store, TierMask mask, uint64_t* bytes,
                    wire::Cause cause, MonoTime now) {
  HuntStep step;
  SessionCore* session = pool.SessionOf(store);
  if (session == nullptr || !session->CanCommand()) return step;
  TierState& tier = store.tiers[TierNumber(mask)];
  const uint64_t before = tier.evicting_bytes;
  const auto victims =
      Hunt(pool.index, tier, store.index, mask, *bytes, 0, pool.in_progress, now, &step);
  session->QueueEvict(pool, victims, mask, cause);
  *bytes -= std::min(*bytes, tier.evicting_bytes - before);
  return step;
}

MonoTime OldestArrival(const Index& index, TierState& tier, StoreIndex store, TierMask mask,
                       MonoTime now) {
  // Stale items at the old end go now; a few at a time, so that asking stays cheap.
  for (int i = 0; i < 32 && !tier.ring.empty(); ++i) {
    const EvictionRing::Item item = tier.ring.Oldest();
    if (Current(index, item, store, mask) != nullptr) return item.arrived;
    tier.ring.PopOldest();
  }
  return tier.ring.empty() ? now : tier.ring.Oldest().arrived;
}

bool CompactRings(PoolState& pool) {
  for (auto& store : pool.stores.all()) {
    for (int t = 0; t < kTierCount; ++t) {
      TierState& tier = store->tiers[t];
      const uint64_t slack = 2 * EvictionRing::kPageItems;
      if (tier.ring.size() <= tier.chunks + tier.chunks / 2 + slack) continue;
      const auto live = [&](const EvictionRing::Item& item) {
        return Current(pool.index, item, store->index, static_cast<TierMask>(1 << t)) != nullptr;
      };
      tier.ring.CompactStep(live, [&pool](EntryIndex entry) { pool.index.Fetch(entry); });
      return true;
    }
  }
  return false;
}

}  // namespace cistern::master
