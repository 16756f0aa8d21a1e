#include "client/inflight_budget.h"

#include <string>
#include <vector>

#include "base/test_util.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

class InflightBudgetTest : public ::testing::Test {
 protected:
  void Acquire(const std::string& name, uint64_t bytes, bool background = false,
               const void* owner = nullptr) {
    budget_.Acquire(bytes, background, owner,
                    [this, name](bool granted) { log_.push_back(name + (granted ? "+" : "-")); });
  }
  InflightBudget budget_{100};
  std::vector<std::string> log_;
};

TEST_F(InflightBudgetTest, GrantsInOrderAsBytesComeBack) {
  Acquire("a", 60);
  Acquire("b", 50);
  Acquire("c", 10);  // would fit, but came after b
  EXPECT_THAT(log_, ElementsAre("a+"));
  EXPECT_EQ(budget_.used(), 60u);
  budget_.Release(60);
  EXPECT_THAT(log_, ElementsAre("a+", "b+", "c+"));
  EXPECT_EQ(budget_.used(), 60u);
}

TEST_F(InflightBudgetTest, LargerThanTheBudgetRunsAlone) {
  Acquire("a", 1);
  Acquire("huge", 1000);
  Acquire("b", 1);
  EXPECT_THAT(log_, ElementsAre("a+"));
  budget_.Release(1);
  EXPECT_THAT(log_, ElementsAre("a+", "huge+"));
  budget_.Release(1000);
  EXPECT_THAT(log_, ElementsAre("a+", "huge+", "b+"));
}

TEST_F(InflightBudgetTest, BackgroundWaitsBehindAllElse) {
  Acquire("a", 100);
  Acquire("slow", 50, /*background=*/true);
  Acquire("b", 60);
  budget_.Release(100);
  EXPECT_THAT(log_, ElementsAre("a+", "b+"));
  budget_.Release(60);
  EXPECT_THAT(log_, ElementsAre("a+", "b+", "slow+"));
}

TEST_F(InflightBudgetTest, WithdrawEndsAnOwnersWaitingAndLetsOthersPass) {
  const int me = 0;
  Acquire("a", 60);
  Acquire("mine", 90, false, &me);
  Acquire("b", 40);
  budget_.Withdraw(&me);
  EXPECT_THAT(log_, ElementsAre("a+", "mine-", "b+"));
  EXPECT_EQ(budget_.used(), 100u);
}

TEST_F(InflightBudgetTest, StartsThatEndAtOnceDoNotRecurse) {
  Acquire("first", 100);
  int depth = 0;
  int deepest = 0;
  int started = 0;
  for (int i = 0; i < 100'000; ++i) {
    budget_.Acquire(100, false, nullptr, [&](bool granted) {
      ASSERT_TRUE(granted);
      deepest = std::max(deepest, ++depth);
      ++started;
      budget_.Release(100);
      --depth;
    });
  }
  budget_.Release(100);
  EXPECT_EQ(started, 100'000);
  EXPECT_EQ(deepest, 1);
  EXPECT_EQ(budget_.used(), 0u);
}

}  // namespace
}  // namespace cistern
