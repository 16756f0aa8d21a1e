#include "master/index.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/status.h"

namespace cistern::master {
namespace {

uint64_t MultiplyFold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// SplitMix64: one seed into several.
uint64_t NextSeed(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

constexpr uint32_t kFirstCapacity = 16;

}  // namespace

Index::Index(const Options& options) : options_(options), tables_(size_t{1} << kTableBits) {
  uint64_t state = options.hash_seed;
  for (uint64_t& seed : seeds_) seed = NextSeed(&state) | 1;
}

Index::~Index() {
  for (IndexEntry* page : pages_) munmap(page, sizeof(IndexEntry) << kPageBits);
}

uint64_t Index::HashOf(const KeyId& id, Shard shard) const {
  const uint64_t folded = MultiplyFold(id.word(0) ^ seeds_[0], id.word(1) ^ seeds_[1]);
  return MultiplyFold(folded ^ seeds_[2], 0x9E3779B97F4A7C15u + 2 * uint64_t{shard.value});
}

EntryIndex Index::FindHashed(uint64_t hash, const KeyId& id, Shard shard) const {
  const Table& table = TableOf(hash);
  if (table.used == 0) return EntryIndex(EntryIndex::kNone);
  const uint32_t tag = TagOf(hash);
  uint32_t i = HomeOf(tag, table.capacity);
  while (table.slots[i] != kEmpty) {
    const uint64_t slot = table.slots[i];
    if (slot >> 32 == tag && Matches(EntryOf(slot), id, shard)) return EntryIndex(EntryOf(slot));
    if (++i == table.capacity) i = 0;
  }
  return EntryIndex(EntryIndex::kNone);
}

EntryIndex Index::Find(const KeyId& id, Shard shard) const {
  return FindHashed(HashOf(id, shard), id, shard);
}

void Index::FetchSlots(size_t n, const KeyId* ids, const Shard* shards, uint64_t* hashes) const {
  for (size_t i = 0; i < n; ++i) {
    hashes[i] = HashOf(ids[i], shards[i]);
    const Table& table = TableOf(hashes[i]);
    if (table.used > 0) {
      __builtin_prefetch(&table.slots[HomeOf(TagOf(hashes[i]), table.capacity)]);
    }
  }
}

// The first slot with the right tag is almost always the right one.
void Index::FetchEntries(size_t n, const uint64_t* hashes) const {
  for (size_t i = 0; i < n; ++i) {
    const Table& table = TableOf(hashes[i]);
    if (table.used == 0) continue;
    const uint32_t tag = TagOf(hashes[i]);
    uint32_t slot = HomeOf(tag, table.capacity);
    while (table.slots[slot] != kEmpty && table.slots[slot] >> 32 != tag) {
      if (++slot == table.capacity) slot = 0;
    }
    if (table.slots[slot] != kEmpty) Fetch(EntryIndex(EntryOf(table.slots[slot])));
  }
}

void Index::FetchBatch(size_t n, const KeyId* ids, const Shard* shards) const {
  uint64_t hashes[kFetchKeys];
  n = std::min(n, kFetchKeys);
  FetchSlots(n, ids, shards, hashes);
  FetchEntries(n, hashes);
}

// Three groups are under way at a time: the slots of one are asked for while the entries of the one
// before come, and the one before that is looked at.
void Index::FindBatch(size_t n, const KeyId* ids, const Shard* shards, EntryIndex* out) const {
  uint64_t hashes[3][kFetchKeys];
  const size_t groups = (n + kFetchKeys - 1) / kFetchKeys;
  const auto size_of = [n](size_t group) { return std::min(kFetchKeys, n - group * kFetchKeys); };
  for (size_t step = 0; step < groups + 2; ++step) {
    if (step < groups) {
      const size_t begin = step * kFetchKeys;
      FetchSlots(size_of(step), ids + begin, shards + begin, hashes[step % 3]);
    }
    if (step >= 1 && step - 1 < groups) FetchEntries(size_of(step - 1), hashes[(step - 1) % 3]);
    if (step < 2) continue;
    const size_t begin = (step - 2) * kFetchKeys;
    for (size_t i = 0; i < size_of(step - 2); ++i) {
      out[begin + i] = FindHashed(hashes[(step - 2) % 3][i], ids[begin + i], shards[begin + i]);
    }
  }
}

void Index::InsertSlot(Table& table, uint64_t slot) {
  uint32_t i = HomeOf(static_cast<uint32_t>(slot >> 32), table.capacity);
  while (table.slots[i] != kEmpty) {
    if (++i == table.capacity) i = 0;
  }
  table.slots[i] = slot;
}

void Index::Grow(Table& table, size_t number) {
  Table bigger;
  // First sizes 16 to 19: with growth by a quarter the tables' turns to grow are spread evenly.
  bigger.capacity = table.capacity == 0 ? kFirstCapacity + static_cast<uint32_t>(number & 3)
                                        : table.capacity + (table.capacity + 3) / 4;
  bigger.used = table.used;
  bigger.slots = std::make_unique_for_overwrite<uint64_t[]>(bigger.capacity);
  std::fill_n(bigger.slots.get(), bigger.capacity, kEmpty);
  for (uint32_t i = 0; i < table.capacity; ++i) {
    if (table.slots[i] != kEmpty) InsertSlot(bigger, table.slots[i]);
  }
  table_slots_ += bigger.capacity - table.capacity;
  table = std::move(bigger);
}

// Closes the gap by moving back what was displaced over it: no tombstones.
void Index::EraseSlot(Table& table, uint32_t tag, uint32_t entry) {
  const uint64_t wanted = uint64_t{tag} << 32 | entry;
  uint32_t gap = HomeOf(tag, table.capacity);
  while (table.slots[gap] != wanted) {
    CISTERN_CHECK(table.slots[gap] != kEmpty);
    if (++gap == table.capacity) gap = 0;
  }
  uint32_t i = gap;
  while (true) {
    if (++i == table.capacity) i = 0;
    const uint64_t slot = table.slots[i];
    if (slot == kEmpty) break;
    const uint32_t home = HomeOf(static_cast<uint32_t>(slot >> 32), table.capacity);
    // Distances from home, around the end: it may move to the gap if that is not before its home.
    const uint32_t from_home = i >= home ? i - home : i + table.capacity - home;
    const uint32_t from_gap = i >= gap ? i - gap : i + table.capacity - gap;
    if (from_home >= from_gap) {
      table.slots[gap] = slot;
      gap = i;
    }
  }
  table.slots[gap] = kEmpty;
  --table.used;
}

EntryIndex Index::NewEntry() {
  if (free_head_ != EntryIndex::kNone) {
    const EntryIndex e(free_head_);
    free_head_ = at(e).parent;
    Fetch(EntryIndex(free_head_));  // the next one's
    return e;
  }
  if (entry_limit_ >= options_.max_entries) return EntryIndex(EntryIndex::kNone);
  if ((entry_limit_ & kPageMask) == 0) {
    void* page = mmap(nullptr, sizeof(IndexEntry) << kPageBits, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (page == MAP_FAILED) return EntryIndex(EntryIndex::kNone);
    pages_.push_back(static_cast<IndexEntry*>(page));
  }
  return EntryIndex(entry_limit_++);
}

EntryIndex Index::Insert(const KeyId& id, Shard shard, NamespaceIndex ns, uint32_t length,
                         uint32_t expiry_unix_s, ReplicaSlot replica) {
  const EntryIndex e = NewEntry();
  if (e.none()) return e;
  IndexEntry& entry = at(e);
  entry.id = id;
  entry.replicas[0] = replica;
  entry.replicas[1] = ReplicaSlot::None();
  entry.heat.Reset();
  entry.length = length;
  entry.expiry_unix_s = expiry_unix_s;
  entry.namespace_and_shard = ns.value << 12 | shard.value;
  entry.parent = EntryIndex::kNone;
  const uint64_t hash = HashOf(id, shard);
  const size_t number = hash >> (64 - kTableBits);
  Table& table = tables_[number];
  // Filled to 17/20 = 0.85 at most.
  if (uint64_t{table.used + 1} * 20 > uint64_t{table.capacity} * 17) Grow(table, number);
  InsertSlot(table, uint64_t{TagOf(hash)} << 32 | e.value);
  ++table.used;
  ++size_;
  return e;
}

void Index::Erase(EntryIndex e) {
  IndexEntry& entry = at(e);
  CISTERN_CHECK(!entry.free());
  if (entry.replicas[1].overflow()) {
    overflow_free_.push_back(entry.replicas[1].overflow_record());
  }
  const uint64_t hash = HashOf(entry.id, entry.shard());
  EraseSlot(tables_[hash >> (64 - kTableBits)], TagOf(hash), e.value);
  entry.replicas[0] = entry.replicas[1] = ReplicaSlot::None();
  entry.heat.Reset();
  entry.parent = free_head_;
  free_head_ = e.value;
  --size_;
}

ReplicaSlot* Index::FindReplica(EntryIndex e, StoreIndex store) {
  ReplicaSlot* found = nullptr;
  ForEachReplica(e, [&](ReplicaSlot& slot) {
    if (slot.store() == store) found = &slot;
    return found == nullptr;
  });
  return found;
}

uint32_t Index::NewOverflowRecord() {
  if (overflow_free_.empty()) {
    overflow_.emplace_back();
    return static_cast<uint32_t>(overflow_.size() - 1);
  }
  const uint32_t record = overflow_free_.back();
  overflow_free_.pop_back();
  overflow_[record] = OverflowRecord();
  return record;
}

bool Index::AddReplica(EntryIndex e, ReplicaSlot replica) {
  IndexEntry& entry = at(e);
  ReplicaSlot& second = entry.replicas[1];
  if (second.overflow()) {
    for (ReplicaSlot& slot : overflow_[second.overflow_record()].slots) {
      if (slot.none()) {
        slot = replica;
        return true;
      }
    }
    return false;
  }
  if (second.none()) {
    second = replica;
    return true;
  }
  const uint32_t record = NewOverflowRecord();
  overflow_[record].slots[0] = second;
  overflow_[record].slots[1] = replica;
  second = ReplicaSlot::Overflow(record);
  return true;
}

bool Index::RemoveReplica(EntryIndex e, StoreIndex store) {
  IndexEntry& entry = at(e);
  ReplicaSlot left[kMaxReplicas];
  int count = 0;
  ForEachReplica(e, [&](ReplicaSlot& slot) {
    if (slot.store() != store) left[count++] = slot;
    return true;
  });
  if (count == 0) {
    Erase(e);
    return true;
  }
  if (entry.replicas[1].overflow()) {
    overflow_free_.push_back(entry.replicas[1].overflow_record());
  }
  entry.replicas[0] = left[0];
  entry.replicas[1] = ReplicaSlot::None();
  for (int i = 1; i < count; ++i) AddReplica(e, left[i]);
  return false;
}

uint64_t Index::memory_bytes() const {
  return uint64_t{entry_limit_} * sizeof(IndexEntry) + table_slots_ * sizeof(uint64_t) +
         tables_.size() * sizeof(Table) + overflow_.capacity() * sizeof(OverflowRecord) +
         overflow_free_.capacity() * sizeof(uint32_t);
}

}  // namespace cistern::master
