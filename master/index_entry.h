// The index entry's layout: 56 bytes per chunk.
//
//   off size field
//     0   16 key id
//    16    8 replica 0   store 16 | tiers 3 | parity 1 | overflow 1 | evicting 3 | version 40
//    24    8 replica 1   the same; or, with the overflow bit, the number of an overflow record
//    32    8 heat        touched 1 | lease until 24 | leases 6 | access tick 24 | frequency 4 | pin
//    2 40    4 length      payload bytes 44    4 expiry      unix seconds, 0 = none 48    4
//    namespace 20 | shard 12 52    4 parent      entry of the chunk before it in its chain
//    (reserved for prefix-aware
//                        policies); in a free entry the next free one
#ifndef CISTERN_MASTER_INDEX_ENTRY_H_
#define CISTERN_MASTER_INDEX_ENTRY_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "master/types.h"

namespace cistern::master {

// One committed copy in one store, packed into 8 bytes.
class ReplicaSlot {
 public:
  ReplicaSlot() = default;
  static ReplicaSlot Make(StoreIndex store, TierMask tiers, bool parity, Version version) {
    ReplicaSlot s;
    s.bits_ = uint64_t{store.value} | static_cast<uint64_t>(tiers & kAllTiers) << 16 |
              uint64_t{parity} << 19 | (version.value & Version::kMax) << 24;
    return s;
  }
  static ReplicaSlot None() { return Make(StoreIndex(StoreIndex::kNone), 0, false, Version(0)); }
  static ReplicaSlot Overflow(uint32_t record) {
    ReplicaSlot s;
    s.bits_ = uint64_t{StoreIndex::kNone} | uint64_t{1} << 20 | uint64_t{record} << 24;
    return s;
  }

  bool none() const { return store().value == StoreIndex::kNone; }
  bool overflow() const { return (bits_ >> 20 & 1) != 0; }
  uint32_t overflow_record() const { return static_cast<uint32_t>(bits_ >> 24); }
  StoreIndex store() const { return StoreIndex(static_cast<uint16_t>(bits_)); }
  TierMask tiers() const { return static_cast<TierMask>(bits_ >> 16 & kAllTiers); }
  // Tiers that the store was told to drop it from and has not reported yet.
  TierMask evicting() const { return static_cast<TierMask>(bits_ >> 21 & kAllTiers); }
  // Where a reader can still expect it.
  TierMask readable_tiers() const { return tiers() & static_cast<TierMask>(~evicting()); }
  bool parity() const { return (bits_ >> 19 & 1) != 0; }
  Version version() const { return Version(bits_ >> 24); }
  uint16_t version_low() const { return static_cast<uint16_t>(bits_ >> 24); }

  void set_evicting(TierMask mask) {
    bits_ = (bits_ & ~(uint64_t{kAllTiers} << 21)) | static_cast<uint64_t>(mask & kAllTiers) << 21;
  }
  void set_parity(bool parity) { bits_ = (bits_ & ~(uint64_t{1} << 19)) | uint64_t{parity} << 19; }

 private:
  uint64_t bits_ = StoreIndex::kNone;
};

// What the chunk's readers did to it. Read and written with relaxed atomics.
class Heat {
 public:
  static constexpr uint32_t kMaxLeases = 63;  // beyond, releases no longer count down

  bool touched() const { return (Load() & 1) != 0; }
  uint32_t frequency() const { return Load() >> 55 & 15; }
  uint32_t access_tick() const { return Load() >> 31 & kTickMask; }
  bool pinned() const { return (Load() >> 59 & 3) != 0; }
  uint32_t leases() const { return Load() >> 25 & kMaxLeases; }
  // Ticks are compared as 24-bit serial numbers: right for up to 9.7 days around now, and the
  // index's sweep clears what has run out long before that.
  uint32_t lease_ticks_left(uint32_t now_tick) const {
    const uint64_t bits = Load();
    if ((bits >> 25 & kMaxLeases) == 0) return 0;
    const uint32_t left = (static_cast<uint32_t>(bits >> 1) - now_tick) & kTickMask;
    return left < kTickMask / 2 ? left : 0;
  }
  bool leased(uint32_t now_tick) const { return lease_ticks_left(now_tick) > 0; }

  // A read at `now_tick`.
  void Touch(uint32_t now_tick) {
    uint64_t bits = Load();
    const uint64_t frequency = std::min<uint64_t>((bits >> 55 & 15) + 1, 15);
    bits &= ~(uint64_t{15} << 55 | uint64_t{kTickMask} << 31);
    Store(bits | 1 | frequency << 55 | uint64_t{now_tick & kTickMask} << 31);
  }
  void SetAccessTick(uint32_t tick) {
    Store((Load() & ~(uint64_t{kTickMask} << 31)) | uint64_t{tick & kTickMask} << 31);
  }
  void ClearTouched() { Store(Load() & ~uint64_t{1}); }
  void SetPin(uint32_t kind) { Store((Load() & ~(uint64_t{3} << 59)) | uint64_t{kind & 3} << 59); }
  // One more lease stands behind the entry, to `until_tick`.
  void AddLease(uint32_t until_tick, uint32_t now_tick) {
    const uint32_t left = lease_ticks_left(now_tick);
    const uint32_t more = (until_tick - now_tick) & kTickMask;
    const uint32_t count = left == 0 ? 1 : std::min(leases() + 1, kMaxLeases);
    SetLease(now_tick + std::max(left, more), count);
  }
  // One lease fewer, before its time. The protection ends when it was the only one; else it stays
  // to the latest time among all of them.
  void DropLease(uint32_t now_tick) {
    const uint32_t count = leases();
    if (!leased(now_tick) || count == 1) return SetLease(0, 0);
    if (count < kMaxLeases) SetLease(static_cast<uint32_t>(Load() >> 1), count - 1);
  }
  void ClearLease() { SetLease(0, 0); }
  void Reset() { Store(0); }

 private:
  static constexpr uint32_t kTickMask = 0xFFFFFF;
  uint64_t Load() const {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(bits_)).load(std::memory_order_relaxed);
  }
  void Store(uint64_t v) { std::atomic_ref<uint64_t>(bits_).store(v, std::memory_order_relaxed); }
  void SetLease(uint32_t until_tick, uint32_t count) {
    const uint64_t keep = Load() & ~(uint64_t{kTickMask} << 1 | uint64_t{kMaxLeases} << 25);
    Store(keep | uint64_t{until_tick & kTickMask} << 1 | uint64_t{count} << 25);
  }

  uint64_t bits_ = 0;
};

struct IndexEntry {
  KeyId id;
  ReplicaSlot replicas[2];
  Heat heat;
  uint32_t length;
  uint32_t expiry_unix_s;
  uint32_t namespace_and_shard;
  uint32_t parent;

  NamespaceIndex ns() const { return NamespaceIndex(namespace_and_shard >> 12); }
  Shard shard() const { return Shard(namespace_and_shard & 0xFFF); }
  bool free() const { return replicas[0].none() && !replicas[0].overflow(); }
};
static_assert(sizeof(IndexEntry) == 56);
static_assert(offsetof(IndexEntry, replicas) == 16);
static_assert(offsetof(IndexEntry, heat) == 32);
static_assert(offsetof(IndexEntry, length) == 40);
static_assert(offsetof(IndexEntry, parent) == 52);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_INDEX_ENTRY_H_
