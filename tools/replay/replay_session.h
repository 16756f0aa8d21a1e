// Replays requests through the client library as an inference engine would use it, and checks every
// byte that comes back.
//
// Per request: look all its chunks up; get the leading run that is there; release the lease; put
// every chunk after the run (those present by then are no-ops).
#ifndef CISTERN_TOOLS_REPLAY_REPLAY_SESSION_H_
#define CISTERN_TOOLS_REPLAY_REPLAY_SESSION_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "client/client.h"
#include "tools/replay/latency_histogram.h"
#include "tools/replay/workload.h"

namespace cistern::replay {

// What one client process counted; summed over processes by the demo.
struct ReplayCounts {
  uint64_t requests = 0;
  uint64_t chunks_looked_up = 0;
  uint64_t chunk_hits = 0;         // looked-up chunks that were present
  uint64_t prefix_hits = 0;        // chunks of leading runs that were got
  uint64_t prefix_hit_tokens = 0;  // the same by tokens: prompt tokens not computed again
  uint64_t prompt_tokens = 0;
  uint64_t bytes_put = 0;  // of chunks that this client brought: not those present already
  uint64_t bytes_got = 0;
  uint64_t puts_present = 0;
  uint64_t puts_in_progress = 0;
  uint64_t get_misses = 0;             // in the leading run, gone before the get
  uint64_t verification_failures = 0;  // chunks with a wrong byte, seen here or by the library
  uint64_t errors = 0;                 // any status but ok, present, in progress, not found
  std::string first_error;
  LatencyHistogram lookup;
  LatencyHistogram put;
  LatencyHistogram get;

  void Merge(const ReplayCounts& other);
  // Prompt tokens not computed again, as a share of all.
  // JSON, for another process.
  std::string ToJson() const;
  static absl::StatusOr<ReplayCounts> FromJson(const std::string& text);
};

// One client's replay. Borrows everything for its lifetime. Not thread-safe.
class ReplaySession {
 public:
  struct Options {
    uint64_t chunk_bytes = 64 << 10;
    uint64_t seed = 1;  // of the chunks' bytes
  };
  // `memory` is registered with the client and holds at least one chunk; longer runs than it holds
  // are got and put in several calls.
  ReplaySession(Namespace& ns, const Buffer& memory, Clock& clock, const Options& options);
  // For tests: the same with plain memory.
  ReplaySession(Namespace& ns, absl::Span<uint8_t> memory, Clock& clock, const Options& options);

  void Replay(const Request& request);
  const ReplayCounts& counts() const { return counts_; }

 private:
  // The number of chunks from the front that came back right.
  size_t GetRun(const Request& request, size_t run);
  void PutFrom(const Request& request, size_t first);
  void CountError(const std::string& what);
  uint8_t* Slot(size_t i) { return memory_.data() + i * options_.chunk_bytes; }

  Namespace& ns_;
  absl::Span<uint8_t> memory_;
  Clock& clock_;
  const Options options_;
  const size_t slots_;
  ReplayCounts counts_;
  std::vector<KeyId> ids_;   // of the request in hand
  std::vector<Span> spans_;  // one a slot
};

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_REPLAY_SESSION_H_
