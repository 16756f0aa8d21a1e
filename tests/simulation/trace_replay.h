// A workload replayed against a simulated pool, beside what exact LRUs would have served.
#ifndef CISTERN_TESTS_SIMULATION_TRACE_REPLAY_H_
#define CISTERN_TESTS_SIMULATION_TRACE_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/replay/workload.h"

namespace cistern::simulation {

struct ReplayOptions {
  int stores = 2;
  uint64_t pool_bytes = 0;  // 0 = a fifth of the workload's distinct bytes
  uint32_t chunk_bytes = 64 << 10;
  uint64_t seed = 1;
  // Time between requests; 0 = as the trace says.
  absl::Duration interval = absl::Milliseconds(3);
  absl::Duration put_delay = absl::Milliseconds(1);  // from placement to commit
  absl::Duration get_time = absl::Milliseconds(1);   // from lookup to release of the lease
  bool place_whole_chain = false;  // Place hears the whole request, not only what is to be put
  bool release = true;             // leases end when the get is over, not only by time
};

struct ReplayResult {
  uint64_t requests = 0;
  uint64_t chunks_looked_up = 0;
  uint64_t chunk_hits = 0;
  uint64_t prefix_hits = 0;  // chunks of leading runs that the stores had
  uint64_t stale_hits = 0;   // of leading runs, not there any more when the get came
  uint64_t wrong = 0;        // a store was named that never held the chunk
  uint64_t refused = 0;      // chunks that Place refused
  uint64_t in_progress = 0;
  uint64_t puts_without_room = 0;
  uint64_t commanded_evictions = 0;
  uint64_t self_evictions = 0;
  double mean_chunks_held = 0;  // from the first eviction on
  double stores_per_get = 0;
  std::vector<double> fills;  // at the end of the trace, by store
  double lru_held_ratio = 0;  // prefix hit ratio of an exact LRU of mean_chunks_held chunks
  double lru_pool_ratio = 0;  // of one of the pool's bytes x the middle watermark
  std::string differences;    // between index and stores after the trace
  std::string leaks;          // what is left after everything was removed

  double prefix_hit_ratio() const {
    return static_cast<double>(prefix_hits) / static_cast<double>(chunks_looked_up);
  }
  double max_fill_deviation() const;  // from the mean
};

ReplayResult ReplayTrace(const replay::Workload& workload, const ReplayOptions& options);

std::string FormatReplay(const ReplayOptions& options, const ReplayResult& result);

}  // namespace cistern::simulation

#endif  // CISTERN_TESTS_SIMULATION_TRACE_REPLAY_H_
