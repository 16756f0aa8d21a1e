// What can be measured again and again: one class an operation, ours and the limits alike.
#ifndef CISTERN_TOOLS_POOLBENCH_MEASUREMENT_H_
#define CISTERN_TOOLS_POOLBENCH_MEASUREMENT_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/replay/latency_histogram.h"

namespace cistern::poolbench {

// Of one round.
struct Round {
  double rate = 0;     // bytes a second, or keys a second for lookups
  uint64_t calls = 0;  // of all threads
  uint64_t keys = 0;   // chunks or keys in them
  // Of each call; empty where a call means nothing (a stream).
  replay::LatencyHistogram latency;
  // CPU time of the pool's master in the part that was timed (see Cpu); 0 = not known.
  double master_cpu_seconds = 0;
  // Lookups whose lease covered all that was found.
  uint64_t leased_calls = 0;
};

class Measurement {
 public:
  virtual ~Measurement() = default;
  // Runs for about `time`.
  virtual absl::StatusOr<Round> Run(absl::Duration time) = 0;
};

// CPU seconds that the master has used so far; null = not known.
using CpuMeter = std::function<double()>;

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_MEASUREMENT_H_
