// poolbench's command line.
#ifndef CISTERN_TOOLS_POOLBENCH_OPTIONS_H_
#define CISTERN_TOOLS_POOLBENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern::poolbench {

// kPut to kMixed are rates beside limits, measured in rounds; the others are scenarios that run
// once and end in a list of figures.
enum class Kind { kPut, kGet, kLookup, kMixed, kOverload, kFill, kReplay, kIndex };
const char* KindName(Kind kind);
inline bool IsRate(Kind kind) { return kind <= Kind::kMixed; }
inline bool MovesBytes(Kind kind) { return kind != Kind::kLookup; }

// One measurement: what is done, with which sizes.
struct Case {
  Kind kind = Kind::kPut;
  uint64_t chunk_bytes = 1 << 20;
  uint64_t batch = 16;
  uint64_t spans = 1;         // pieces of the caller's memory that make a chunk
  double gets = 0.8;          // mixed: the share of calls that are gets
  bool lease = true;          // lookup: takes one
  std::string Title() const;  // "get, chunks of 1.0 MiB, 16 a call"
};

// "get chunk=1MiB batch=16 spans=64": an operation, then what differs from its defaults.
// InvalidArgument says what is wrong with which word.
absl::StatusOr<Case> ParseCase(const std::string& text);

struct Options {
  std::vector<Case> cases;
  std::string wire = "tcp";
  std::string memory = "allocated";  // or "foreign": memory of the caller's own, registered
  uint64_t threads = 1;
  double seconds = 2;
  uint64_t rounds = 5;
  uint64_t stores = 1;
  uint64_t working_set_bytes = uint64_t{512} << 20;
  uint64_t pool_bytes = uint64_t{256} << 20;  // overload, fill, replay
  bool baseline = false;
  std::string json = {};
  std::string master = {};  // data port of a running pool; empty = one of our own
  std::string token_file = {};
  std::string commit = {};

  double overload_times = 3;  // bytes put, as a multiple of the pool's
  std::string trace = {};     // replay; empty = generated
  uint64_t requests = 0;      // replay; 0 = all, or kGeneratedRequests
  uint64_t index_stores = 16;
  uint64_t index_chunks = 5'000'000;
  uint64_t evictions = 1'000'000;
  uint64_t evictions_per_second = 50'000;
  uint64_t rebuild_chunks = 1'000'000;
};
inline constexpr uint64_t kGeneratedRequests = 2000;

struct ParsedOptions {
  Options options;
  int exit_code = -1;  // >= 0: end with it
};
ParsedOptions ParseOptions(int argc, const char* const* argv);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_OPTIONS_H_
