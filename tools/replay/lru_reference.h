// What an ideal pool would have served: one exact LRU over all chunks, without stores, leases,
// batches or races. The demo's hit ratio is shown beside it.
#ifndef CISTERN_TOOLS_REPLAY_LRU_REFERENCE_H_
#define CISTERN_TOOLS_REPLAY_LRU_REFERENCE_H_

#include <cstdint>

#include "tools/replay/workload.h"

namespace cistern::replay {

struct LruResult {
  uint64_t chunks_looked_up = 0;
  uint64_t chunk_hits = 0;
  uint64_t prefix_hits = 0;        // chunks in leading runs
  uint64_t prefix_hit_tokens = 0;  // the same by tokens
  uint64_t evictions = 0;

  double prefix_hit_ratio() const {
    return chunks_looked_up == 0
               ? 0
               : static_cast<double>(prefix_hits) / static_cast<double>(chunks_looked_up);
  }
};

// Replays `workload` against an exact LRU of `capacity_chunks`. A request looks up all its blocks,
// touches those that are there, in order, then inserts all of them in order.
LruResult ReplayExactLru(const Workload& workload, uint64_t capacity_chunks);

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_LRU_REFERENCE_H_
