// Waiting in tests for what another thread, or process, does.
#ifndef CISTERN_BASE_EVENTUALLY_H_
#define CISTERN_BASE_EVENTUALLY_H_

#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern {

// Asks until `done()` is true. False: it was not so within 30 s of real time, more than anything
// that tests wait for takes on the busiest host; a test that would hang fails with a line number.
template <typename Done>
[[nodiscard]] bool Eventually(Done done) {
  const MonoTime until = Clock::Real().Mono() + absl::Seconds(30);
  while (!done()) {
    if (Clock::Real().Mono() >= until) return false;
    Clock::Real().SleepFor(absl::Microseconds(50));
  }
  return true;
}

}  // namespace cistern

#endif  // CISTERN_BASE_EVENTUALLY_H_
