#include "tools/poolbench/rate_windows.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(RateWindowsTest, SpreadsACallOverTheWindowsItTook) {
  RateWindows windows(absl::Milliseconds(100));
  // 300 units over 150 ms: 2 a ms; 50 ms in the first window, 100 ms in the second.
  windows.Add(absl::Milliseconds(50), absl::Milliseconds(200), 300);
  EXPECT_THAT(windows.Rates(absl::Milliseconds(250)),
              ElementsAre(DoubleNear(1000, 0.01), DoubleNear(2000, 0.01)));
}

TEST(RateWindowsTest, AWindowWithoutWorkHasARateOfNothing) {
  RateWindows windows(absl::Seconds(1));
  windows.Add(absl::ZeroDuration(), absl::Seconds(1), 7);
  windows.Add(absl::Seconds(2), absl::Seconds(2), 5);  // in no time at all
  EXPECT_THAT(windows.Rates(absl::Seconds(3)),
              ElementsAre(DoubleNear(7, 0.01), 0, DoubleNear(5, 0.01)));
  EXPECT_THAT(windows.Rates(absl::Milliseconds(900)), ElementsAre());
}

}  // namespace
}  // namespace cistern::poolbench
