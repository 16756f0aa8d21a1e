#include "tools/replay/latency_histogram.h"

#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

TEST(LatencyHistogramTest, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (int ns = 1; ns <= 50; ++ns) histogram.Record(absl::Nanoseconds(ns));
  EXPECT_EQ(histogram.Percentile(0.5), absl::Nanoseconds(25));
  EXPECT_EQ(histogram.Percentile(0), absl::Nanoseconds(1));
  EXPECT_EQ(histogram.Percentile(1), absl::Nanoseconds(50));
  EXPECT_EQ(histogram.sum(), absl::Nanoseconds(1275));
}

TEST(LatencyHistogramTest, PercentilesAreAtMostOneBucketAboveTheTruth) {
  LatencyHistogram histogram;
  for (int us = 1; us <= 100'000; ++us) histogram.Record(absl::Microseconds(us));
  for (double p : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const double truth_us = p * 100'000;
    const double shown_us = absl::ToDoubleMicroseconds(histogram.Percentile(p));
    EXPECT_GE(shown_us, truth_us - 1e-6) << p;
    EXPECT_LE(shown_us, truth_us * 1.016) << p;
  }
  EXPECT_EQ(histogram.max(), absl::Milliseconds(100));
  EXPECT_EQ(histogram.Percentile(1), absl::Milliseconds(100));
}

TEST(LatencyHistogramTest, EmptyIsZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.Percentile(0.99), absl::ZeroDuration());
  EXPECT_EQ(histogram.max(), absl::ZeroDuration());
}

TEST(LatencyHistogramTest, ExtremesAreKeptWithinBounds) {
  LatencyHistogram histogram;
  histogram.Record(-absl::Seconds(1));
  histogram.Record(absl::InfiniteDuration());
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.Percentile(0.5), absl::ZeroDuration());
  EXPECT_GT(histogram.Percentile(1), absl::Minutes(18));
}

TEST(LatencyHistogramTest, MergeAndSerializeKeepEverything) {
  LatencyHistogram a;
  LatencyHistogram b;
  a.Record(absl::Microseconds(10));
  b.Record(absl::Milliseconds(10));
  b.Record(absl::Seconds(10));
  const auto parsed = LatencyHistogram::Parse(b.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  a.Merge(*parsed);
  EXPECT_EQ(a.count(), 3u);
  EXPECT_EQ(a.max(), absl::Seconds(10));
  EXPECT_EQ(a.sum(), absl::Microseconds(10'010'010));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(a.Percentile(0.5)), 10, 0.16);
}

TEST(LatencyHistogramTest, RefusesWhatIsNotOne) {
  for (const char* text :
       {"", "1 2", "1 2 3", "1 2 3 5:2", "1 2 3 99999:1", "x 2 3", "1 2 3 5", "1 -2 3 5:1"}) {
    EXPECT_FALSE(LatencyHistogram::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cistern::replay
