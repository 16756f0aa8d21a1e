#include "store/work_thread.h"

#include <atomic>
#include <memory>
#include <vector>

#include "base/eventually.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

TEST(WorkThreadTest, RunsTasksInOrderAndThoseQueuedByTasksBehindThem) {
  WorkThread thread(4);
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
  WorkThread thread(2);
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
  WorkThread thread(2);
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

}  // namespace
}  // namespace cistern::store
