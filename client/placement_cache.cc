#include "client/placement_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/status.h"

namespace cistern {

// All zero = empty: `expires` of a live entry is at least 1.
struct PlacementCache::Entry {
  KeyId id;
  uint16_t shard;
  uint16_t stores[2];
  uint16_t unused;
  uint32_t expires;  // ticks of 100 ms since the cache was made
  uint32_t unused2;

  bool Is(const ChunkName& name) const {
    return expires != 0 && id == name.id && shard == name.shard.value;
  }
};

PlacementCache::PlacementCache(const Options& options)
    : seed_(options.seed),
      clock_(*options.clock),
      start_(options.clock->Mono()),
      set_count_(std::bit_ceil(std::max<size_t>(options.capacity, 1024)) / kWays) {
  static_assert(sizeof(Entry) == 32);
  // Zero pages that nobody touches cost nothing.
  entries_ = static_cast<Entry*>(std::calloc(set_count_ * kWays, sizeof(Entry)));
  CISTERN_CHECK(entries_ != nullptr);
}

PlacementCache::~PlacementCache() { std::free(entries_); }

size_t PlacementCache::SetOf(const ChunkName& name) const {
  // Two multiply-folds: each input bit reaches every output bit, under a seed nobody outside knows.
  const auto fold = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  const uint64_t h = fold(name.id.word(0) ^ seed_, name.id.word(1) ^ 0x9E3779B97F4A7C15u);
  return fold(h ^ name.shard.value, seed_ | 0xD6E8FEB86659FD93u) & (set_count_ - 1);
}

uint32_t PlacementCache::Tick(absl::Duration ahead) const {
  const int64_t ms = absl::ToInt64Milliseconds(clock_.Mono() - start_ + ahead);
  // 32 bits of 100 ms last for 13 years.
  return static_cast<uint32_t>(std::clamp<int64_t>(ms / 100 + 1, 1, UINT32_MAX));
}

void PlacementCache::Put(const ChunkName& name, const Placement& placement,
                         absl::Duration lifetime) {
  const uint32_t now = Tick(absl::ZeroDuration());
  const uint32_t expires = Tick(std::min(lifetime, absl::Hours(24)));
  const size_t set = SetOf(name);
  Entry* ways = entries_ + set * kWays;
  MutexLock lock(mutexes_[set % kLocks]);
  Entry* chosen = ways;
  for (Entry* e = ways; e != ways + kWays; ++e) {
    if (e->Is(name)) {
      // A store learned earlier with a longer lease is no less true.
      e->expires = std::max(e->expires <= now ? 0 : e->expires, expires);
      e->stores[0] = placement.stores[0].value;
      e->stores[1] = placement.stores[1].value;
      return;
    }
    if (e->expires < chosen->expires) chosen = e;
  }
  *chosen = {name.id, name.shard.value, {placement.stores[0].value, placement.stores[1].value},
             0,       expires,          0};
}

std::optional<Placement> PlacementCache::Get(const ChunkName& name) const {
  const uint32_t now = Tick(absl::ZeroDuration());
  const size_t set = SetOf(name);
  const Entry* ways = entries_ + set * kWays;
  MutexLock lock(mutexes_[set % kLocks]);
  for (const Entry* e = ways; e != ways + kWays; ++e) {
    if (!e->Is(name)) continue;
    if (e->expires <= now) return std::nullopt;
    return Placement{{LocalStore(e->stores[0]), LocalStore(e->stores[1])}};
  }
  return std::nullopt;
}

void PlacementCache::Drop(const ChunkName& name) {
  const size_t set = SetOf(name);
  Entry* ways = entries_ + set * kWays;
  MutexLock lock(mutexes_[set % kLocks]);
  for (Entry* e = ways; e != ways + kWays; ++e) {
    if (e->Is(name)) *e = Entry{};
  }
}

}  // namespace cistern
