#include "base/clock.h"

#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(MonoTimeTest, DiffersAndComparesByTheTimeBetween) {
  const MonoTime t{absl::Seconds(5)};
  EXPECT_EQ((t + absl::Seconds(2)) - t, absl::Seconds(2));
  EXPECT_EQ(t - absl::Seconds(5), MonoTime{});
  EXPECT_LT(t, t + absl::Nanoseconds(1));
  EXPECT_LT(t + absl::Hours(1'000'000), MonoTime::Infinite());
  EXPECT_EQ(MonoTime::Infinite() + absl::Seconds(1), MonoTime::Infinite());
}

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock(absl::FromUnixSeconds(100));
  const MonoTime start = clock.Mono();
  EXPECT_EQ(clock.Mono(), start);
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Mono() - start, absl::Milliseconds(1500));
  EXPECT_EQ(clock.Wall(), absl::FromUnixMillis(101'500));
}

TEST(FakeClockTest, WallJumpsLeaveTheMonotonicClockAlone) {
  FakeClock clock(absl::FromUnixSeconds(100));
  const MonoTime start = clock.Mono();
  clock.JumpWall(-absl::Seconds(60));
  EXPECT_EQ(clock.Wall(), absl::FromUnixSeconds(40));
  EXPECT_EQ(clock.Mono(), start);
}

TEST(FakeClockTest, SleepersWakeWhenTheirTimeHasCome) {
  FakeClock clock;
  const MonoTime start = clock.Mono();
  std::promise<MonoTime> woke;
  std::thread sleeper([&] {
    clock.SleepFor(absl::Seconds(3));
    woke.set_value(clock.Mono());
  });
  // However the threads interleave, the sleeper asked for 3 s and each step is 1 s.
  std::future<MonoTime> result = woke.get_future();
  while (result.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    clock.Advance(absl::Seconds(1));
  }
  sleeper.join();
  EXPECT_GE(result.get() - start, absl::Seconds(3));
}

TEST(FakeClockTest, NoTimeIsNoSleep) {
  FakeClock clock;
  clock.SleepFor(absl::ZeroDuration());
  clock.SleepFor(-absl::Seconds(1));
}

TEST(RealClockTest, NeverRunsBackwards) {
  Clock& clock = Clock::Real();
  MonoTime last = clock.Mono();
  for (int i = 0; i < 1000; ++i) {
    const MonoTime now = clock.Mono();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(RealClockTest, SleepsAtLeastAsLongAsAsked) {
  Clock& clock = Clock::Real();
  const MonoTime start = clock.Mono();
  clock.SleepFor(absl::Milliseconds(2));
  EXPECT_GE(clock.Mono() - start, absl::Milliseconds(2));
}

TEST(RealClockTest, WallTimeIsOurs) {
  // Past the day this was written: neither seconds nor nanoseconds are mixed up.
  EXPECT_GT(Clock::Real().Wall(), absl::FromUnixSeconds(1'700'000'000));
  EXPECT_LT(Clock::Real().Wall(), absl::FromUnixSeconds(10'000'000'000));
}

TEST(ThreadCpuTimeTest, CountsWorkAndNotSleep) {
  Clock& clock = Clock::Real();
  const absl::Duration start = ThreadCpuTime();
  clock.SleepFor(absl::Milliseconds(100));
  const absl::Duration slept = ThreadCpuTime() - start;
  EXPECT_LT(slept, absl::Milliseconds(50));
  // Ends at the latest when the clock that is tested has come that far.
  uint64_t sum = 0;
  while (ThreadCpuTime() - start < slept + absl::Milliseconds(5)) {
    for (uint64_t i = 0; i < 10'000; ++i) sum += i * sum + 1;
  }
  EXPECT_GE(ThreadCpuTime() - start, slept + absl::Milliseconds(5)) << sum;
}

}  // namespace
}  // namespace cistern
