// poolbench's command line.
#ifndef CISTERN_TOOLS_POOLBENCH_OPTIONS_H_
#define CISTERN_TOOLS_POOLBENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cistern::poolbench {

enum class Kind { kPut, kGet, kLookup };
const char* KindName(Kind kind);

// One measurement: what is done, with which sizes.
struct Case {
  Kind kind = Kind::kPut;
  uint64_t chunk_bytes = 1 << 20;
  uint64_t batch = 16;
  std::string Title() const;  // "get, chunks of 1.0 MiB, 16 a call"
};

struct Options {
  std::vector<Case> cases;
  std::string wire = "tcp";
  uint64_t threads = 1;
  double seconds = 2;
  uint64_t rounds = 5;
  uint64_t stores = 1;
  uint64_t working_set_bytes = uint64_t{512} << 20;
  bool baseline = false;
  std::string json = {};
  std::string master = {};  // data port of a running pool; empty = one of our own
  std::string token_file = {};
  std::string commit = {};
};

struct ParsedOptions {
  Options options;
  int exit_code = -1;  // >= 0: end with it
};
ParsedOptions ParseOptions(int argc, const char* const* argv);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_OPTIONS_H_
