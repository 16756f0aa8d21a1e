#include "store/work_thread.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/eventually.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

TEST(WorkThreadTest, RunsTasksInOrderAndThoseQueuedByTasksBehindThem) {
  WorkThread thread(4, Clock::Real());
  std::vector<int> ran;
  std::atomic<bool> over{false};
  ASSERT_TRUE(thread.Run([&] {
    ran.push_back(1);
    EXPECT_TRUE(thread.Run([&] {
      ran.push_back(3);
      over = true;
    }));
  }));
  ASSERT_TRUE(thread.Run([&] { ran.push_back(2); }));
  thread.Start();
  ASSERT_TRUE(Eventually([&] { return over.load(); }));
  thread.Stop();
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(WorkThreadTest, FullQueueRefuses) {
  WorkThread thread(2, Clock::Real());
  EXPECT_TRUE(thread.Run([] {}));
  EXPECT_TRUE(thread.Run([] {}));
  EXPECT_FALSE(thread.Run([] {}));
  EXPECT_EQ(thread.queued(), 2u);
  thread.Start();
  EXPECT_TRUE(Eventually([&] { return thread.queued() == 0; }));
  EXPECT_TRUE(thread.Run([] {}));
}

// Tasks own calls and references: they must be let go of, whether they ran or not.
TEST(WorkThreadTest, StopLetsGoOfWhatHasNotRun) {
  WorkThread thread(2, Clock::Real());
  auto held = std::make_shared<int>(0);
  bool ran = false;
  ASSERT_TRUE(thread.Run([held, &ran] { ran = true; }));
  EXPECT_EQ(held.use_count(), 2);
  thread.Stop();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(ran);
  EXPECT_FALSE(thread.Run([held] {}));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(WorkThreadTest, TellsHowLongTheTaskInHandHasBeenRunning) {
  FakeClock clock;
  WorkThread thread(2, clock);
  std::atomic<bool> running{false};
  std::atomic<bool> may_end{false};
  ASSERT_TRUE(thread.Run([&] {
    running = true;
    EXPECT_TRUE(Eventually([&] { return may_end.load(); }));
  }));
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(thread.busy_for(), absl::ZeroDuration());  // it only waits
  thread.Start();
  ASSERT_TRUE(Eventually([&] { return running.load(); }));
  clock.Advance(absl::Seconds(7));
  EXPECT_EQ(thread.busy_for(), absl::Seconds(7));
  may_end = true;
  EXPECT_TRUE(Eventually([&] { return thread.busy_for() == absl::ZeroDuration(); }));
}

}  // namespace
}  // namespace cistern::store
