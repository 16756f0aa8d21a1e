// The master's clockwork: one thread.
#ifndef CISTERN_MASTER_TICKER_H_
#define CISTERN_MASTER_TICKER_H_

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "master/core_driver.h"

namespace cistern::master {

// Promise: while it lives the core's time goes on (acks, watermarks, leases, silent stores), its
// background work progresses in slices, removals end at their deadline, and `sweep` runs. Role: the
// daemon owns one. Thread-safe. Borrows the driver; owns its thread, joined by the destructor.
class Ticker {
 public:
  struct Options {
    absl::Duration tick = absl::Milliseconds(10);
    absl::Duration sweep = absl::Milliseconds(100);
    // Share of a tick spent on background slices while there are any.
    absl::Duration background = absl::Milliseconds(5);
  };
  Ticker(Options options, CoreDriver& driver, absl::AnyInvocable<void()> sweep);
  ~Ticker();

  // How long ago the thread last came round: long when it hangs, or waits for the core's lock.
  absl::Duration since_tick() const;

 private:
  void Run();
  void Tick();

  const Options options_;
  CoreDriver& driver_;
  absl::AnyInvocable<void()> sweep_;  // the thread's
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> last_tick_ns_;
  std::thread thread_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_TICKER_H_
