// The index: which stores hold which chunk.
#ifndef CISTERN_MASTER_INDEX_H_
#define CISTERN_MASTER_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "master/index_entry.h"
#include "master/types.h"

namespace cistern::master {

// Promise: finds a chunk's entry in about one memory access per table level, takes under 70 bytes
// per chunk at any size, and never pauses longer than rebuilding one of its 16,384 tables (a
// hundred microseconds with 200 million chunks). Entries live in dense pages and do not move; an
// entry's number names the chunk until it is erased, then is used again.
//
// The hash (64 bits, with a seed of this process, so that crafted ids cannot build long probe
// chains) picks a table by its upper bits; a table is linear probing over 8-byte slots {tag 32,
// entry 32}, filled to between 0.68 and 0.85, and grows by a quarter on its own. Tables start at
// sizes a little apart, so that they do not all grow at once: the memory rises smoothly.
//
// Role: the record appliers change it; lookups, evictors and sweeps read it and change heat.
// Thread-safety: none.
class Index {
 public:
  struct Options {
    uint64_t max_entries = 200'000'000;
    uint64_t hash_seed = 0;
  };
  explicit Index(const Options& options);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // None when absent.
  EntryIndex Find(const KeyId& id, Shard shard) const;
  // out[i] = Find(ids[i], shards[i]), with the memory accesses of some dozens of them under way at
  // a time.
  void FindBatch(size_t n, const KeyId* ids, const Shard* shards, EntryIndex* out) const;

  // A new entry with the one replica. Precondition: not present. None when max_entries are in use
  // or the system has no memory for another page.
  EntryIndex Insert(const KeyId& id, Shard shard, NamespaceIndex ns, uint32_t length,
                    uint32_t expiry_unix_s, ReplicaSlot replica);
  // Precondition: `entry` is in use.
  void Erase(EntryIndex entry);

  IndexEntry& at(EntryIndex e) { return pages_[e.value >> kPageBits][e.value & kPageMask]; }
  const IndexEntry& at(EntryIndex e) const {
    return pages_[e.value >> kPageBits][e.value & kPageMask];
  }
  // Asks for the entry from memory, if it is one.
  void Fetch(EntryIndex e) const {
    if (e.value >= entry_limit_) return;
    const char* const entry = reinterpret_cast<const char*>(&at(e));
    __builtin_prefetch(entry, 1);
    __builtin_prefetch(entry + sizeof(IndexEntry) - 1, 1);
  }
  // Asks from memory for what Find, and what follows it, will look at. `n` is at most kFetchKeys.
  static constexpr size_t kFetchKeys = 16;
  void FetchBatch(size_t n, const KeyId* ids, const Shard* shards) const;
  bool InUse(EntryIndex e) const { return e.value < entry_limit_ && !at(e).free(); }

  // --- Replicas. At most kMaxReplicas an entry. Pointers are good until the next change.
  static constexpr int kMaxReplicas = 5;
  // The replica in `store`; null when there is none.
  ReplicaSlot* FindReplica(EntryIndex e, StoreIndex store);
  // Adds a replica in a store that has none. False when the entry is full.
  bool AddReplica(EntryIndex e, ReplicaSlot replica);
  // Takes the replica away; erases the entry with its last one and then returns true.
  bool RemoveReplica(EntryIndex e, StoreIndex store);
  // Calls fn(ReplicaSlot&) for each, first replica 0; until fn returns false.
  template <typename Fn>
  void ForEachReplica(EntryIndex e, Fn fn) {
    IndexEntry& entry = at(e);
    if (entry.replicas[0].none() || !fn(entry.replicas[0])) return;
    if (entry.replicas[1].overflow()) {
      for (ReplicaSlot& slot : overflow_[entry.replicas[1].overflow_record()].slots) {
        if (!slot.none() && !fn(slot)) return;
      }
    } else if (!entry.replicas[1].none()) {
      fn(entry.replicas[1]);
    }
  }
  template <typename Fn>
  void ForEachReplica(EntryIndex e, Fn fn) const {
    const_cast<Index*>(this)->ForEachReplica(
        e, [&fn](ReplicaSlot& slot) { return fn(static_cast<const ReplicaSlot&>(slot)); });
  }

  // Entries in use are all below this number; those that are not InUse are gaps. What iterates
  // (listing, sweeps) walks 0 to entry_limit() in slices; entries that are there throughout are
  // met.
  uint32_t entry_limit() const { return entry_limit_; }
  uint64_t size() const { return size_; }
  // Pages (what has been in use of them), tables and overflow records.
  uint64_t memory_bytes() const;

 private:
  static constexpr int kPageBits = 16;
  static constexpr uint32_t kPageMask = (1u << kPageBits) - 1;
  static constexpr int kTableBits = 14;
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  struct Table {
    std::unique_ptr<uint64_t[]> slots;
    uint32_t capacity = 0;
    uint32_t used = 0;
  };
  static_assert(sizeof(Table) == 16);
  // Up to four more replicas of a chunk that has more than two.
  struct OverflowRecord {
    ReplicaSlot slots[4];
  };

  uint64_t HashOf(const KeyId& id, Shard shard) const;
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash); }
  static uint32_t HomeOf(uint32_t tag, uint32_t capacity) {
    return static_cast<uint32_t>(uint64_t{tag} * capacity >> 32);
  }
  static uint32_t EntryOf(uint64_t slot) { return static_cast<uint32_t>(slot); }
  const Table& TableOf(uint64_t hash) const { return tables_[hash >> (64 - kTableBits)]; }
  EntryIndex FindHashed(uint64_t hash, const KeyId& id, Shard shard) const;
  // The two steps of fetching: their slots, once these are there their entries.
  void FetchSlots(size_t n, const KeyId* ids, const Shard* shards, uint64_t* hashes) const;
  void FetchEntries(size_t n, const uint64_t* hashes) const;
  bool Matches(uint32_t entry, const KeyId& id, Shard shard) const {
    const IndexEntry& e = at(EntryIndex(entry));
    // By words: the arrays' own comparison is a call.
    return e.id.word(0) == id.word(0) && e.id.word(1) == id.word(1) && e.shard() == shard;
  }
  static void InsertSlot(Table& table, uint64_t slot);
  void Grow(Table& table, size_t number);
  void EraseSlot(Table& table, uint32_t tag, uint32_t entry);
  EntryIndex NewEntry();
  uint32_t NewOverflowRecord();

  const Options options_;
  uint64_t seeds_[3];
  std::vector<IndexEntry*> pages_;  // each 2^kPageBits entries, mapped, never moved
  std::vector<Table> tables_;
  uint64_t table_slots_ = 0;
  uint32_t entry_limit_ = 0;
  uint32_t free_head_ = EntryIndex::kNone;
  uint64_t size_ = 0;
  std::vector<OverflowRecord> overflow_;
  std::vector<uint32_t> overflow_free_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_INDEX_H_
