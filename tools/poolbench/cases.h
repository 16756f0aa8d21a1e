// What poolbench measures of a pool: one class an operation.
#ifndef CISTERN_TOOLS_POOLBENCH_CASES_H_
#define CISTERN_TOOLS_POOLBENCH_CASES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "tools/poolbench/options.h"
#include "tools/poolbench/threads.h"

namespace cistern::poolbench {

// A rate that can be measured again and again: bytes a second, or keys a second for lookups.
class Measurement {
 public:
  virtual ~Measurement() = default;
  // Runs for about `time`.
  virtual absl::StatusOr<double> Round(absl::Duration time) = 0;
};

// The chunks that a case works on: their ids, and memory of the client's as large as all of them.
struct WorkingSet {
  std::shared_ptr<Namespace> ns;
  Buffer memory;
  uint64_t chunk_bytes = 0;
  std::vector<KeyId> ids;
  std::vector<Span> spans;  // one a chunk

  // Chunks [begin, end) are thread `i`'s of `threads`, a multiple of `batch` where it goes.
  std::pair<size_t, size_t> Share(uint64_t i, uint64_t threads) const;
};
// Every byte of the memory has been written. The namespace is new.
absl::StatusOr<WorkingSet> MakeWorkingSet(Client& client, const Case& one, uint64_t bytes);

// Put: the whole set, then (untimed) its removal. Get: the whole set, over and over, into the same
// memory. Lookup: `batch` keys a call, all present.
absl::StatusOr<std::unique_ptr<Measurement>> MakeMeasurement(const Case& one, Client& client,
                                                             uint64_t working_set_bytes,
                                                             uint64_t threads, Clock& clock);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_CASES_H_
