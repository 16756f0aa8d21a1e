// Leases: timed promises not to evict, named by a random id.
#ifndef CISTERN_MASTER_LEASE_TABLE_H_
#define CISTERN_MASTER_LEASE_TABLE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/ids.h"
#include "master/types.h"

namespace cistern::master {

// One chunk under a lease: enough to tell later whether the entry still is that chunk.
struct LeasedEntry {
  EntryIndex entry;
  uint16_t version_low = 0;  // low 16 bits of replica 0's version
};

// Promise: remembers every live lease and what it charges to each store; the sum of charges never
// exceeds a store's share. A lease ends by Release or by time; either gives its charge back. Work
// at an end is proportional to that lease alone; nothing scans the index when time passes.
//
// What protects a chunk from eviction is not this table but the entry itself: its lease-until time
// and the number of leases that stand behind it (IndexEntry::AddLease). A lease that ends by time
// needs no visit to its entries, because their time has passed too. A lease that is released early
// hands its entries to the caller, who takes one lease off each (IndexEntry::DropLease): an entry
// with no other lease is free at once, one with others keeps the latest time among them, also
// where that was the released one's. So protection may outlast a release by up to the longest
// lease, but never ends early, and the charge is exact throughout.
//
// Role: LookupCall grants; Release and Tick end. Thread-safety: none. Owns everything it holds.
class LeaseTable {
 public:
  struct Options {
    uint32_t max_leases = 1'000'000;
    // Fills n bytes with unguessable ones.
    std::function<void(void*, size_t)> random_bytes;
  };
  // A lease while its lookup still runs. Not valid any more once the lease has ended.
  struct Handle {
    uint32_t slot = kNone;
    uint32_t serial = 0;
    static constexpr uint32_t kNone = 0xFFFFFFFF;
    bool none() const { return slot == kNone; }
  };
  struct Lease;
  class Grant;
  // Lease times are counted in ticks of 100 ms; entries keep the low 24 bits.
  static constexpr absl::Duration kTick = absl::Milliseconds(100);
  static constexpr absl::Duration kMaxLease = absl::Minutes(10);
  // The first tick at or after `t`.
  static uint32_t TickAtOrAfter(MonoTime t);
  static uint32_t TickOf(MonoTime t);

  explicit LeaseTable(Options options);

  // A new lease with nothing under it. None when max_leases are live or until is past.
  // `until` is rounded up to a tick and capped at now + kMaxLease.
  Handle Begin(MonoTime until, MonoTime now);
  // See Grant.
  Grant Open(Handle handle);
  // The same by handle, for one chunk.
  bool Charge(Handle handle, StoreIndex store, uint64_t bytes, uint64_t limit_bytes);
  // Records what was charged, for an early release, each chunk once: all of a lease at once, so
  // that its list is made in its size.
  void SetEntries(Handle handle, absl::Span<const LeasedEntry> entries);
  // The id to hand out; the zero id when the lease has ended.
  LeaseId id(Handle handle) const;
  uint32_t until_tick(Handle handle) const;
  // Forgets a lease that covers nothing.
  void Abandon(Handle handle);

  // Ends a lease early. False when there is no such lease, or its time has passed. `entries` gets
  // what was under it, `until_tick` its time.
  bool Release(const LeaseId& id, MonoTime now, std::vector<LeasedEntry>* entries,
               uint32_t* until_tick);
  // Ends what has run out, at most `max` leases; true when there may be more.
  bool Expire(MonoTime now, uint32_t max);

  uint32_t live() const { return live_; }
  uint64_t charged_bytes() const { return charged_total_; }
  uint64_t charged_bytes(StoreIndex store) const;

  // The class's own; here for Grant.
  struct StoreCharge {
    StoreIndex store;
    uint64_t bytes;
  };
  struct Lease {
    LeaseId id;
    uint32_t serial = 0;
    uint32_t until_tick = 0;
    uint32_t prev = Handle::kNone;  // neighbours in the wheel's slot
    uint32_t next = Handle::kNone;
    bool live = false;
    absl::InlinedVector<StoreCharge, 2> charges;
    std::vector<LeasedEntry> entries;
  };

  // A lease that chunk after chunk is put under. Good until any other lease begins or ends.
  class Grant {
   public:
    Grant() = default;
    Grant(LeaseTable* table, Lease* lease) : table_(table), lease_(lease) {}
    // False: the lease has ended, and nothing can be put under it.
    bool live() const { return lease_ != nullptr; }
    // Puts a chunk under the lease and charges its bytes to the store. False, and nothing changed,
    // when that would take the store's charge beyond `limit_bytes`, or the lease has ended.
    bool Charge(StoreIndex store, uint64_t bytes, uint64_t limit_bytes);
    uint32_t until_tick() const { return lease_ == nullptr ? 0 : lease_->until_tick; }

   private:
    LeaseTable* table_ = nullptr;
    Lease* lease_ = nullptr;
  };

 private:
  static constexpr uint32_t kWheelSlots = 8192;  // 819 s: longer than any lease

  absl::flat_hash_map<LeaseId, uint32_t>& PartOf(const LeaseId& id) { return by_id_[id.bytes[0]]; }
  Lease* Live(Handle handle);
  const Lease* Live(Handle handle) const;
  void End(uint32_t slot);

  const Options options_;
  std::deque<Lease> leases_;  // grows without moving what is there
  std::vector<uint32_t> free_;
  // In parts, by an id's first byte: growing moves one part, and the lock is held meanwhile.
  std::array<absl::flat_hash_map<LeaseId, uint32_t>, 256> by_id_;
  std::vector<uint32_t> wheel_;    // first lease of each slot
  uint32_t wheel_tick_ = 0;        // every slot before this tick is empty
  std::vector<uint64_t> charged_;  // by store
  uint64_t charged_total_ = 0;
  uint32_t live_ = 0;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_LEASE_TABLE_H_
