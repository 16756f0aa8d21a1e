// Fault points: named places where a test can make the process fail, stop or die.
//
//   if (CISTERN_FAULT("store.put.before_commit")) return absl::UnavailableError("fault");
//
// Unarmed it costs one relaxed load. A daemon arms points from its --fault flag (repeatable, only
// with --enable-faults), a test through ArmFault. Actions:
//   error      the expression is true once per armed count
//   kill       SIGKILL to ourselves
//   stop       SIGSTOP to ourselves
//   delay=20ms sleeps, then the expression is false
//   jump=-1h   of the point "clock.wall" only: the real wall clock reads this much more or less
//              (each reading passes the point: "clock.wall:jump=1h:0:100" jumps at the 101st)
#ifndef CISTERN_BASE_FAULT_H_
#define CISTERN_BASE_FAULT_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace cistern {

// spec: "name:action[:count[:skip]]", count (default 1) how often it acts, 0 = for ever; skip
// (default 0) = let that many pass first. Arming a name again replaces what it had. InvalidArgument
// says what is wrong with the spec. Thread-safe.
absl::Status ArmFault(std::string_view spec);
void DisarmFaults();
// How often the armed point `name` has acted since it was armed; 0 if it is not armed.
uint64_t FaultActions(std::string_view name);

namespace internal {
extern std::atomic<bool> g_faults_armed;
bool FaultHit(std::string_view name);
}  // namespace internal
}  // namespace cistern

#define CISTERN_FAULT(name)                                               \
  (::cistern::internal::g_faults_armed.load(std::memory_order_relaxed) && \
   ::cistern::internal::FaultHit(name))

#endif  // CISTERN_BASE_FAULT_H_
