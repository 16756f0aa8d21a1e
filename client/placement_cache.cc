#include "client/placement_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace cistern {

// All zero = empty: `expires` of a live entry is at least 1.
struct PlacementCache::Entry {
  uint64_t tag;
  uint16_t stores[2];
  uint32_t expires;  // ticks of 100 ms since the cache was made

  bool Is(uint64_t wanted) const { return tag == wanted && expires != 0; }
};

namespace {

// Zero pages, so that sets lie in lines; those that nobody touches cost nothing. Null: none to be
// had (a limit of the process, or of its container).
void* MapZeroPages(size_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

size_t SetCount(size_t capacity, size_t ways) {
  return std::bit_ceil(std::max<size_t>(capacity, 1024)) / ways;
}

// Each input bit reaches every output bit.
uint64_t Fold(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

PlacementCache::PlacementCache(const Options& options)
    : seed_(options.seed),
      clock_(*options.clock),
      start_(options.clock->Mono()),
      set_count_(SetCount(options.capacity, kWays)),
      entries_(static_cast<Entry*>(MapZeroPages(set_count_ * kWays * sizeof(Entry)))) {
  static_assert(sizeof(Entry) == 16);
}

PlacementCache::~PlacementCache() {
  if (entries_ != nullptr) munmap(entries_, set_count_ * kWays * sizeof(Entry));
}

PlacementCache::Place PlacementCache::Fetch(const ChunkName& name) const {
  const uint64_t h = Fold(name.id.word(0) ^ seed_, name.id.word(1) ^ 0x9E3779B97F4A7C15u);
  // The set by some bits, the entry in it by all.
  const uint64_t tag = Fold(h ^ name.shard.value, seed_ | 0xD6E8FEB86659FD93u);
  Entry* const ways = entries_ + (tag & (set_count_ - 1)) * kWays;
  constexpr size_t kLine = 64;
  for (size_t line = 0; line < kWays * sizeof(Entry); line += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(ways) + line, 1);
  }
  return {ways, tag};
}

uint32_t PlacementCache::Tick(absl::Duration ahead) const {
  const int64_t ms = absl::ToInt64Milliseconds(clock_.Mono() - start_ + ahead);
  // 32 bits of 100 ms last for 13 years.
  return static_cast<uint32_t>(std::clamp<int64_t>(ms / 100 + 1, 1, UINT32_MAX));
}

void PlacementCache::PutInSet(const Place& place, const Placement& placement, uint32_t now,
                              uint32_t expires) {
  Entry* chosen = place.ways;
  for (Entry* e = place.ways; e != place.ways + kWays; ++e) {
    if (e->Is(place.tag)) {
      // A longer lease that was learned earlier is no less true.
      if (e->expires > now) expires = std::max(expires, e->expires);
      chosen = e;
      break;
    }
    if (e->expires < chosen->expires) chosen = e;
  }
  *chosen = {place.tag, {placement.stores[0].value, placement.stores[1].value}, expires};
}

PlacementCache::Writer::Writer(PlacementCache* cache, absl::Duration lifetime)
    : cache_(*cache),
      now_(cache->Tick(absl::ZeroDuration())),
      expires_(cache->Tick(std::min(lifetime, absl::Hours(24)))) {}

void PlacementCache::Writer::Flush() {
  MutexLock lock(cache_.mutex_);
  for (size_t i = 0; i < used_; ++i) cache_.PutInSet(places_[i], placements_[i], now_, expires_);
  used_ = 0;
}

void PlacementCache::Get(absl::Span<const ChunkName> names, std::vector<Placement>* out) const {
  out->assign(names.size(), Placement());
  if (entries_ == nullptr) return;
  const uint32_t now = Tick(absl::ZeroDuration());
  for (size_t first = 0; first < names.size(); first += kBatch) {
    const size_t n = std::min(kBatch, names.size() - first);
    Place places[kBatch];
    for (size_t i = 0; i < n; ++i) places[i] = Fetch(names[first + i]);
    MutexLock lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      for (const Entry* e = places[i].ways; e != places[i].ways + kWays; ++e) {
        if (!e->Is(places[i].tag)) continue;
        if (e->expires > now) {
          (*out)[first + i] = {{LocalStore(e->stores[0]), LocalStore(e->stores[1])}};
        }
        break;
      }
    }
  }
}

void PlacementCache::Drop(const ChunkName& name) {
  if (entries_ == nullptr) return;
  const Place place = Fetch(name);
  MutexLock lock(mutex_);
  for (Entry* e = place.ways; e != place.ways + kWays; ++e) {
    if (e->Is(place.tag)) *e = Entry{};
  }
}

}  // namespace cistern
