// The demo's command line, checked before anything is started.
#ifndef CISTERN_TOOLS_REPLAY_DEMO_OPTIONS_H_
#define CISTERN_TOOLS_REPLAY_DEMO_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/replay/workload.h"

namespace cistern::replay {

struct DemoOptions {
  std::string trace = {};  // empty = generated
  uint64_t requests = 0;   // 0 = all of the trace, or kGeneratedRequests
  uint64_t clients = 2;
  uint64_t stores = 2;
  uint64_t chunk_bytes = 64 << 10;
  uint64_t pool_bytes = 0;  // 0 = a fifth of the workload's distinct bytes
  std::string wire = "auto";
  uint64_t seed = 1;
  bool keep = false;
  std::string json = {};
  std::string commit = {};  // of the build; set by tools/demo
  double prefill_tokens_per_second = 10'000;
};

inline constexpr uint64_t kGeneratedRequests = 6000;
inline constexpr uint64_t kMaxDefaultPoolBytes = uint64_t{4} << 30;
inline constexpr uint64_t kMinSegmentBytes = uint64_t{8} << 20;
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{64} << 30;

// Parses flags. Not OK with exit_code 0 after --help, which it prints.
struct ParsedDemoOptions {
  DemoOptions options;
  int exit_code = -1;  // >= 0: end with it
};
ParsedDemoOptions ParseDemoOptions(int argc, const char* const* argv);
// The flags' names with their dashes, for the test that keeps the help text complete.
std::vector<std::string> DemoFlagNames();

// The bytes of the pool, from the flags, the workload and the host's free memory. InvalidArgument
// says what would do.
absl::StatusOr<uint64_t> ChoosePoolBytes(const DemoOptions& options,
                                         const WorkloadSummary& workload, uint64_t free_bytes);

// Bytes that can be taken for segments in `segment_parent` now: available memory, or what is left
// of that file system if less.
uint64_t FreeBytes(const std::string& segment_parent);

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_DEMO_OPTIONS_H_
