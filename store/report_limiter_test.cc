#include "store/report_limiter.h"

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

MonoTime At(double seconds) { return MonoTime{} + absl::Seconds(seconds); }

TEST(ReportLimiterTest, WrongReportsAreBoundedByTheRate) {
  ReportLimiter limiter({.bytes_per_second = 1'000, .burst_bytes = 10'000});
  uint64_t hashed = 0;
  // A peer that does nothing else for 100 s.
  for (int i = 0; i < 100'000; ++i) {
    if (limiter.Admit(500, At(i * 0.001))) hashed += 500;
  }
  // The burst, what 100 s earn, and the last one's debt.
  EXPECT_LE(hashed, 10'000u + 100'000u + 500u);
  EXPECT_GE(hashed, 10'000u + 100'000u - 1'000u);
}

TEST(ReportLimiterTest, RightReportsCostNothing) {
  ReportLimiter limiter({.bytes_per_second = 1, .burst_bytes = 1'000});
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(limiter.Admit(900, At(1))) << i;
    limiter.Refund(900);
  }
}

TEST(ReportLimiterTest, ChunkLargerThanTheBurstIsPaidForInDebt) {
  ReportLimiter limiter({.bytes_per_second = 1'000, .burst_bytes = 1'000});
  EXPECT_TRUE(limiter.Admit(6'000, At(0)));
  EXPECT_FALSE(limiter.Admit(1, At(4.9)));
  EXPECT_TRUE(limiter.Admit(1, At(5.1)));
}

TEST(ReportLimiterTest, ClockThatStandsStillEarnsNothing) {
  ReportLimiter limiter({.bytes_per_second = 1'000'000, .burst_bytes = 10});
  EXPECT_TRUE(limiter.Admit(10, At(3)));
  EXPECT_FALSE(limiter.Admit(1, At(3)));
  EXPECT_FALSE(limiter.Admit(1, At(2)));  // nor one that runs back
}

TEST(ReportLimiterTest, ManySmallStepsEarnWhatOneLargeOneDoes) {
  ReportLimiter limiter({.bytes_per_second = 100, .burst_bytes = 100});
  ASSERT_TRUE(limiter.Admit(100, At(0)));
  // Each step is worth a tenth of a byte.
  for (int i = 1; i <= 1'000; ++i) {
    if (limiter.Admit(0, At(i * 0.001))) return;
  }
  FAIL() << "nothing was earned in a second";
}

}  // namespace
}  // namespace cistern::store
