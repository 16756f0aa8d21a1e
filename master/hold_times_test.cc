#include "master/hold_times.h"

#include "gtest/gtest.h"

namespace cistern::master {
namespace {

TEST(HoldTimesTest, CountsByPowersOfTwoAndKeepsTheLongest) {
  HoldTimes times;
  times.Add(absl::ZeroDuration());
  times.Add(absl::Nanoseconds(1));
  times.Add(absl::Nanoseconds(1000));  // 512 to 1,023
  times.Add(absl::Nanoseconds(1024));  // 1,024 to 2,047
  times.Add(absl::Nanoseconds(-5));    // a clock that is none
  EXPECT_EQ(times.by_log2[0], 2u);
  EXPECT_EQ(times.by_log2[1], 1u);
  EXPECT_EQ(times.by_log2[10], 1u);
  EXPECT_EQ(times.by_log2[11], 1u);
  EXPECT_EQ(times.longest, absl::Nanoseconds(1024));
  times.Add(absl::Hours(1));
  EXPECT_EQ(times.by_log2.back(), 1u);
  EXPECT_EQ(times.longest_cpu, absl::ZeroDuration());
  times.AddCpu(absl::Microseconds(3));
  times.AddCpu(absl::Microseconds(2));
  EXPECT_EQ(times.longest_cpu, absl::Microseconds(3));
}

}  // namespace
}  // namespace cistern::master
