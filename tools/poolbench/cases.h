// The operations of a pool that are measured as rates.
#ifndef CISTERN_TOOLS_POOLBENCH_CASES_H_
#define CISTERN_TOOLS_POOLBENCH_CASES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "client/client.h"
#include "tools/poolbench/measurement.h"
#include "tools/poolbench/options.h"
#include "tools/poolbench/working_set.h"

namespace cistern::poolbench {

struct CaseOptions {
  uint64_t working_set_bytes = 0;
  uint64_t threads = 1;
  MemoryOrigin origin = MemoryOrigin::kAllocated;
  CpuMeter master_cpu = nullptr;
};

// Put: the whole set, then (untimed) its removal. Get: the whole set, over and over, into the same
// memory; placements are cached. Lookup: `batch` keys a call, all present. Mixed: gets of one half
// of the set, puts of the other, which is removed (untimed) whenever all of it is there.
// Precondition: IsRate(one.kind). Borrows client and clock.
absl::StatusOr<std::unique_ptr<Measurement>> MakeMeasurement(const Case& one, Client& client,
                                                             const CaseOptions& options,
                                                             Clock& clock);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_CASES_H_
