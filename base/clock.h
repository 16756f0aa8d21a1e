// Time. Everything that reads or waits for time takes a Clock; leases and deadlines use the
// monotonic one. The only place where the system's clocks are read.
#ifndef CISTERN_BASE_CLOCK_H_
#define CISTERN_BASE_CLOCK_H_

#include "absl/time/time.h"
#include "base/mutex.h"

namespace cistern {

// A point of the monotonic clock: time since an arbitrary origin (the host's boot), never jumps.
struct MonoTime {
  absl::Duration since_origin = absl::ZeroDuration();
  static MonoTime Infinite() { return {absl::InfiniteDuration()}; }
  friend MonoTime operator+(MonoTime t, absl::Duration d) { return {t.since_origin + d}; }
  friend MonoTime operator-(MonoTime t, absl::Duration d) { return {t.since_origin - d}; }
  friend absl::Duration operator-(MonoTime a, MonoTime b) {
    return a.since_origin - b.since_origin;
  }
  friend bool operator==(MonoTime a, MonoTime b) { return a.since_origin == b.since_origin; }
  friend auto operator<=>(MonoTime a, MonoTime b) {
    return a.since_origin < b.since_origin   ? std::strong_ordering::less
           : a.since_origin > b.since_origin ? std::strong_ordering::greater
                                             : std::strong_ordering::equal;
  }
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonoTime Mono() const = 0;
  virtual absl::Time Wall() const = 0;
  // Blocks the calling thread. A FakeClock returns when it has been advanced far enough.
  virtual void SleepFor(absl::Duration d) = 0;

  // The process's real clock.
  static Clock& Real();
};

// The time that the calling thread has been running for: a system call.
absl::Duration ThreadCpuTime();

// A clock that moves only when told to. Thread-safe.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time wall = absl::FromUnixSeconds(1'700'000'000)) : wall_(wall) {}
  MonoTime Mono() const override;
  absl::Time Wall() const override;
  void SleepFor(absl::Duration d) override;
  // Moves both clocks forward.
  void Advance(absl::Duration d);
  // Moves only the wall clock, by any amount: what an administrator or NTP does.
  void JumpWall(absl::Duration d);

 private:
  mutable Mutex mutex_;
  CondVar moved_;
  absl::Duration mono_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1000);
  absl::Time wall_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_BASE_CLOCK_H_
