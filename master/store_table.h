// The pool's stores as the master knows them.
#ifndef CISTERN_MASTER_STORE_TABLE_H_
#define CISTERN_MASTER_STORE_TABLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "master/admin_views.h"
#include "master/eviction_ring.h"
#include "master/index_entry.h"
#include "master/types.h"
#include "proto/store.pb.h"
#include "proto/types.pb.h"

namespace cistern::master {

// What is known of one tier of one store. "By the index" = by the records applied so far.
struct TierState {
  EvictionRing ring;
  uint64_t bytes = 0;           // extents, by the index
  uint64_t chunks = 0;          // by the index
  uint64_t evicting_bytes = 0;  // told to drop, not yet reported
  uint64_t evicting_chunks = 0;
  uint64_t hunt_looks = 0;      // of the hunt for victims that goes on (evictor.h)
  uint64_t capacity_bytes = 0;  // allocatable
  uint64_t header_count = 0;    // 0 = no limit known
  uint64_t overhead_bytes = 0;  // what the store says is committed beyond `bytes` (part tables...)

  uint64_t used_bytes() const { return bytes + overhead_bytes; }
  uint64_t mean_chunk_bytes() const { return chunks == 0 ? 0 : bytes / chunks; }
};

// 0 for DRAM, 1 for SSD, 2 for cold: a single tier bit as a position.
inline int TierNumber(TierMask tier) { return tier == kDram ? 0 : tier == kSsd ? 1 : 2; }

struct Store {
  StoreIndex index;
  StoreId id;
  std::string name;
  std::string software_version;
  StoreState state = StoreState::kDead;
  uint64_t incarnation = 0;
  std::vector<wire::Endpoint> endpoints;
  std::vector<wire::SegmentInfo> segments;
  wire::Heartbeat heartbeat;
  SessionId session;  // 0 = none
  MonoTime last_heard;
  MonoTime dead_since;
  bool forgotten = false;  // dead for so long that its entries were dropped
  std::array<TierState, kTierCount> tiers;
  std::vector<uint64_t> removed_by_cause = std::vector<uint64_t>(16);

  // Where a resumed session goes on: only when every record before it has been applied.
  bool resumable = false;
  uint64_t next_seq = 0;
  // Mark of a replica that the running snapshot (or a delta since its start) has shown.
  bool parity = false;
  // Every replica of this store carries `parity`, so that a new snapshot can flip it.
  bool parity_clean = true;
  bool hide_unmarked = false;
  // Chunks of mutable namespaces that this store got by an earlier placement than this may have
  // been written anew elsewhere, while it was away: what it still has of them is to go.
  uint64_t distrust_below = 0;
  bool distrusted = false;  // and its next session must show all that it holds
  bool sweeping = false;    // a sweep over its replicas is queued or runs

  TierState& dram() { return tiers[0]; }
  const TierState& dram() const { return tiers[0]; }
  uint64_t chunk_count() const { return tiers[0].chunks + tiers[1].chunks + tiers[2].chunks; }
};

// Promise: a store keeps its index until it is forgotten; whether a replica may be read is one byte
// to look at. Role: sessions change it, everything reads it. Thread-safety: none.
class StoreTable {
 public:
  // The store with this id, added when new. Null when 65,535 are there.
  Store* FindOrAdd(const StoreId& id);
  Store* Find(const StoreId& id);
  Store* at(StoreIndex index) {
    return index.value < stores_.size() ? stores_[index.value].get() : nullptr;
  }
  const Store* at(StoreIndex index) const {
    return index.value < stores_.size() ? stores_[index.value].get() : nullptr;
  }
  const std::vector<std::unique_ptr<Store>>& all() const { return stores_; }
  std::vector<std::unique_ptr<Store>>& all() { return stores_; }

  // Publishes state, parity and hide_unmarked of a store to Readable; a new directory version when
  // clients must hear of it.
  void Publish(const Store& store);
  // Can a reader be sent to this replica?
  bool Readable(ReplicaSlot slot) const {
    const uint8_t flags = flags_[slot.store().value];
    return (flags & kServing) != 0 && slot.readable_tiers() != 0 &&
           ((flags & kHide) == 0 || ((flags & kParity) != 0) == slot.parity());
  }
  bool Placeable(const Store& store) const {
    return store.state == StoreState::kServing || store.state == StoreState::kSyncing;
  }

  uint64_t directory_version() const { return directory_version_; }
  void TouchDirectory() { ++directory_version_; }
  // Versions of different epochs never meet: a client that outlives a master must not take the
  // next one's store indexes for those it knows.
  void StartDirectoryEpoch(Epoch epoch) {
    directory_version_ = std::max(directory_version_, epoch.value << 32) + 1;
  }
  void FillDirectory(wire::StoreDirectory* out) const;

 private:
  static constexpr uint8_t kServing = 1;
  static constexpr uint8_t kHide = 2;
  static constexpr uint8_t kParity = 4;

  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<uint8_t> flags_;
  absl::flat_hash_map<StoreId, StoreIndex> by_id_;
  uint64_t directory_version_ = 1;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_STORE_TABLE_H_
