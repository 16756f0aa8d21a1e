// What the demo found out, as a table and as JSON. Pure.
#ifndef CISTERN_TOOLS_REPLAY_DEMO_REPORT_H_
#define CISTERN_TOOLS_REPLAY_DEMO_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "tools/replay/lru_reference.h"
#include "tools/replay/replay_session.h"

namespace cistern::replay {

// The mean number of chunks that the pool held, over requests, from the first eviction on; without
// an eviction, the final number. Fed with samples in order.
class ChunksHeld {
 public:
  // `requests` done so far, `chunks` in the pool now, `evictions` so far.
  void Sample(uint64_t requests, uint64_t chunks, uint64_t evictions);
  double mean() const;

 private:
  uint64_t last_requests_ = 0;
  uint64_t last_chunks_ = 0;
  bool evicting_ = false;
  double weighted_ = 0;
  uint64_t weight_ = 0;
};

struct DemoResult {
  ReplayCounts counts;      // over all clients
  admin::StatsReply stats;  // when all requests were done
  double mean_chunks_held = 0;
  std::string wire;
  std::string commit;
  std::string build_mode;
  uint64_t clients = 1;
  absl::Duration elapsed;

  // For the table only.
  uint64_t chunk_bytes = 0;
  uint64_t pool_bytes = 0;
  uint64_t distinct_chunks = 0;
  double prefill_tokens_per_second = 10'000;
  LruResult lru_of_mean;  // an exact LRU of mean_chunks_held
  // An exact LRU of what the pool's bytes hold halfway between the watermarks.
  LruResult lru_of_bytes;
  uint64_t lru_of_bytes_chunks = 0;
};

// Bytes a second while in calls of this kind: over the clients' summed time in them, times the
// clients that made them at once.
double Throughput(uint64_t bytes, const LatencyHistogram& calls, uint64_t clients);
// Evictions by the pool's own choice: not what was removed by a caller or expired.
uint64_t Evictions(const google::protobuf::Map<std::string, uint64_t>& removed_by_cause);

std::string DemoTable(const DemoResult& result);
// The wires that carried bytes, "+" between them.
std::string WiresUsed(const admin::StatsReply& stats);
// The chunks that the stores' allocatable bytes times `share` hold, by what a chunk took on
// average.
uint64_t ChunksAtShare(const admin::StatsReply& stats, double share);
// One object with the documented keys, and no others.
std::string DemoJson(const DemoResult& result);

// What is left in the pool after everything was removed: empty when nothing is. `connections`
// counts clients only.
std::vector<std::string> Leaks(const admin::StatsReply& stats,
                               const admin::SegmentsReply& segments);

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_DEMO_REPORT_H_
