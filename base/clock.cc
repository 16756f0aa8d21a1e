#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace cistern {
namespace {

absl::Duration Read(clockid_t id) {
  timespec ts;
  clock_gettime(id, &ts);  // Cannot fail: these clocks always exist and `ts` is ours.
  return absl::DurationFromTimespec(ts);
}

class RealClock final : public Clock {
 public:
  MonoTime Mono() const override { return {Read(CLOCK_MONOTONIC)}; }
  absl::Time Wall() const override { return absl::UnixEpoch() + Read(CLOCK_REALTIME); }
  void SleepFor(absl::Duration d) override { absl::SleepFor(d); }
};

}  // namespace

Clock& Clock::Real() {
  // Never destroyed: threads may still read it while the process ends.
  static RealClock* const clock = new RealClock;
  return *clock;
}

absl::Duration ThreadCpuTime() { return Read(CLOCK_THREAD_CPUTIME_ID); }

MonoTime FakeClock::Mono() const {
  MutexLock lock(mutex_);
  return {mono_};
}

absl::Time FakeClock::Wall() const {
  MutexLock lock(mutex_);
  return wall_;
}

void FakeClock::SleepFor(absl::Duration d) {
  MutexLock lock(mutex_);
  const absl::Duration until = mono_ + d;
  while (mono_ < until) moved_.Wait(mutex_);
}

void FakeClock::Advance(absl::Duration d) {
  MutexLock lock(mutex_);
  mono_ += d;
  wall_ += d;
  moved_.NotifyAll();
}

void FakeClock::JumpWall(absl::Duration d) {
  MutexLock lock(mutex_);
  wall_ += d;
}

}  // namespace cistern
