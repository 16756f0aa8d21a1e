// What is replayed: requests of an inference service, each a chain of 512-token blocks.
//
// The public KV-trace format, one JSON object a line:
//   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [block, ...]}
// A block id names the same 512 tokens, after the same prefix, wherever it recurs.
#ifndef CISTERN_TOOLS_REPLAY_WORKLOAD_H_
#define CISTERN_TOOLS_REPLAY_WORKLOAD_H_

#include <cstdint>
#include <istream>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern::replay {

inline constexpr uint32_t kBlockTokens = 512;
// The longest line that is read; about a million blocks.
inline constexpr size_t kMaxLineBytes = size_t{8} << 20;

struct Request {
  uint64_t timestamp_ms = 0;
  uint32_t input_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint64_t> blocks;  // at least one

  // Prompt tokens in the first `count` blocks; the last block of a prompt is rarely full.
  uint64_t TokensOfFirst(size_t count) const;
  friend bool operator==(const Request&, const Request&) = default;
};

using Workload = std::vector<Request>;

// Reads at most `max_requests` (0 = all). InvalidArgument names the line and what is wrong with it;
// blank lines are skipped. A workload without a request is refused.
absl::StatusOr<Workload> ReadTrace(std::istream& in, std::string_view name, uint64_t max_requests);
// NotFound or PermissionDenied with the path, else as ReadTrace.
absl::StatusOr<Workload> ReadTraceFile(const std::string& path, uint64_t max_requests);

// The same format; ReadTrace gives back an equal workload.
void WriteTrace(const Workload& workload, std::ostream& out);

struct WorkloadSummary {
  uint64_t requests = 0;
  uint64_t chunks = 0;  // blocks, counted as often as they are asked for
  uint64_t distinct_chunks =
      0;  // times the bytes of a chunk: what a pool would need to hold it all
  uint64_t input_tokens = 0;
  uint64_t longest_request_chunks = 0;
};
WorkloadSummary Summarize(const Workload& workload);

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_WORKLOAD_H_
