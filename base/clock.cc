#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"
#include "base/wall_offset.h"

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
  absl::Time Wall() const override {
    const absl::Time now = absl::UnixEpoch() + Read(CLOCK_REALTIME);
    const auto offset = internal::g_wall_offset.load(std::memory_order_relaxed);
    return offset == nullptr ? now : now + offset();
  }
  void SleepFor(absl::Duration d) override { absl::SleepFor(d); }
};

}  // namespace

namespace internal {
std::atomic<absl::Duration (*)()> g_wall_offset{nullptr};
}  // namespace internal

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
