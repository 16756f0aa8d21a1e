// What the admin service shows, as plain data: the shell turns it into its messages.
#ifndef CISTERN_MASTER_ADMIN_VIEWS_H_
#define CISTERN_MASTER_ADMIN_VIEWS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "master/types.h"
#include "proto/store.pb.h"
#include "proto/types.pb.h"

namespace cistern::master {

// Why a chunk got no store.
enum class PlaceRefusal : uint8_t {
  kNoStore = 0,    // none serves with room
  kNoRoom = 1,     // what the stores hold cannot go yet: leased, pinned, just placed
  kTableFull = 2,  // too many chunks are being put at once
};
inline constexpr int kPlaceRefusals = 3;
const char* PlaceRefusalName(PlaceRefusal refusal);

// Running totals of one namespace.
struct NamespaceCounters {
  uint64_t lookup_keys = 0;
  uint64_t lookup_hits = 0;
  uint64_t put_chunks = 0;  // reported by stores as put, not found again by a snapshot
  uint64_t put_bytes = 0;
  uint64_t evicted_chunks = 0;
};

// Running totals of the clients' calls.
struct PoolCounters {
  uint64_t lookups = 0;
  uint64_t lookup_keys = 0;
  uint64_t lookup_hits = 0;
  uint64_t miss_absent = 0;      // never put, removed, or evicted long ago
  uint64_t miss_evicted = 0;     // evicted lately
  uint64_t miss_dead_store = 0;  // only replica on a store that is not serving
  uint64_t exists_calls = 0;
  uint64_t places = 0;
  uint64_t place_placed = 0;
  uint64_t place_present = 0;
  uint64_t place_in_progress = 0;
  uint64_t place_refused = 0;
  std::array<uint64_t, kPlaceRefusals> place_refused_by = {};  // index = PlaceRefusal
  uint64_t removes = 0;
  uint64_t lease_refused = 0;  // lookups whose lease was cut short or refused by the share
  uint64_t records_applied = 0;
  uint64_t records_refused = 0;  // index full, too many replicas, nonsense
  uint64_t stale_mutable = 0;    // older copies of mutable chunks that stores were told to drop
  uint64_t sessions_opened = 0;
  uint64_t sessions_closed = 0;
  uint64_t snapshots_begun = 0;
  uint64_t snapshots_completed = 0;
  std::vector<uint64_t> removed_by_cause = std::vector<uint64_t>(16);  // index = wire::Cause
};

struct PoolView {
  PoolCounters counters;
  Epoch epoch;
  uint64_t chunk_count = 0;
  uint64_t payload_bytes = 0;
  uint32_t active_leases = 0;
  uint64_t leased_bytes = 0;
  uint64_t lease_limit_bytes = 0;  // of the stores that serve
  uint32_t in_progress_puts = 0;
  uint32_t pending_removals = 0;
  uint64_t index_bytes = 0;  // memory of index and rings
  absl::Duration uptime;
};

enum class StoreState : uint8_t {
  kServing = 0,
  kSyncing = 1,  // serving what its snapshot has shown so far
  kSuspect = 2,  // silent: nothing is placed there
  kDead = 3,     // no session or long silent: lookups skip it
};
const char* StoreStateName(StoreState state);

struct StoreView {
  StoreIndex index;
  StoreId id;
  std::string name;
  std::string software_version;
  StoreState state = StoreState::kDead;
  uint64_t incarnation = 0;
  std::vector<wire::Endpoint> endpoints;
  wire::Heartbeat heartbeat;  // the last one
  std::vector<wire::SegmentInfo> segments;
  uint64_t chunk_count = 0;      // by the index
  uint64_t accounted_bytes = 0;  // by the index
  uint64_t placed_bytes = 0;     // placed, not yet reported
  uint64_t evicting_bytes = 0;   // commanded, not yet reported
  uint64_t leased_bytes = 0;
  uint64_t lease_limit_bytes = 0;
  absl::Duration oldest_age;  // of its DRAM ring's oldest entry
  std::vector<uint64_t> removed_by_cause;
};

struct NamespaceView {
  NamespaceIndex index;
  wire::NamespaceInfo info;
  uint64_t chunk_count = 0;
  uint64_t payload_bytes = 0;
  NamespaceCounters counters;
};

// The whole pool in numbers, for metrics: cheap to take (no names, no messages).
struct PoolNumbers {
  PoolView pool;
  struct Tier {
    uint64_t capacity_bytes = 0;
    uint64_t used_bytes = 0;  // extents, as the index has it
    uint64_t chunks = 0;
    uint64_t evicting_bytes = 0;
  };
  std::array<Tier, kTierCount> tiers;
  std::array<uint64_t, 4> stores_by_state = {};  // index = StoreState
  uint64_t placed_bytes = 0;
  uint64_t max_chunks = 0;
  uint64_t namespaces = 0;  // numbers given out, those of removed ones too
  uint64_t sweeps = 0;      // passes over the index that wait or run
};

struct ChunkView {
  KeyId id;
  Shard shard;
  NamespaceIndex ns;
  uint32_t length = 0;
  struct Replica {
    StoreIndex store;
    TierMask tiers = 0;
    Version version;
    bool serving = false;
    bool evicting = false;
  };
  std::vector<Replica> replicas;
  absl::Duration lease_left;
  bool pinned = false;
  bool touched = false;
  uint32_t expiry_unix_s = 0;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_ADMIN_VIEWS_H_
