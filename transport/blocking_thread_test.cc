#include "transport/blocking_thread.h"

#include <atomic>
#include <future>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace cistern::transport {
namespace {

class BlockingThreadTest : public testing::Test {
 protected:
  // Blocks until the gate is opened, then counts.
  BlockingThread::Work Gated() {
    return [this, open = gate_.get_future().share()]() -> BlockingThread::Result {
      ++begun_;
      open.wait();
      ++ended_;
      return [this] { ++delivered_; };
    };
  }
  static void Await(const std::atomic<int>& count, int value) {
    while (count != value) Clock::Real().SleepFor(absl::Milliseconds(1));
  }

  std::atomic<int> begun_{0};
  std::atomic<int> ended_{0};
  std::atomic<int> delivered_{0};
  std::promise<void> gate_;
  BlockingThread thread_{[](BlockingThread::Result result) { result(); }};
};

TEST_F(BlockingThreadTest, DeliversInOrder) {
  std::vector<int> order;
  std::atomic<int> count{0};
  for (int i = 0; i < 100; ++i) {
    thread_.Run([&, i]() -> BlockingThread::Result {
      return [&, i] {
        order.push_back(i);
        ++count;
      };
    });
  }
  Await(count, 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(BlockingThreadTest, StopWaitsForNothingAndNothingIsDeliveredAfterIt) {
  thread_.Run(Gated());
  std::atomic<int> others{0};
  thread_.Run([&others]() -> BlockingThread::Result {
    ++others;
    return [] {};
  });
  Await(begun_, 1);
  thread_.Stop();  // would hang here if it waited
  EXPECT_EQ(ended_, 0);
  gate_.set_value();
  Await(ended_, 1);
  thread_.Run([&others]() -> BlockingThread::Result {
    ++others;
    return [] {};
  });
  EXPECT_EQ(delivered_, 0);
  EXPECT_EQ(others, 0);
}

TEST_F(BlockingThreadTest, WorkMayOutliveTheObject) {
  auto ended = std::make_shared<std::atomic<int>>(0);
  auto begun = std::make_shared<std::atomic<int>>(0);
  {
    BlockingThread thread([](BlockingThread::Result result) { result(); });
    thread.Run([ended, begun, open = gate_.get_future().share()]() -> BlockingThread::Result {
      ++*begun;
      open.wait();
      ++*ended;
      return [] {};
    });
    Await(*begun, 1);
    thread.Stop();
  }
  gate_.set_value();
  Await(*ended, 1);
}

}  // namespace
}  // namespace cistern::transport
