#include "base/latency_histogram.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(LatencyHistogramTest, CountsIntoTheClassThatHoldsTheTime) {
  LatencyHistogram histogram;
  histogram.Count(absl::Microseconds(50));   // a bound belongs to its class
  histogram.Count(absl::Microseconds(51));   // the next one
  histogram.Count(absl::Milliseconds(700));  // up to 1 s
  histogram.Count(absl::Seconds(3600));      // beyond the last
  histogram.Count(-absl::Seconds(1));        // a clock that ran backwards
  const LatencyHistogram::Counts counts = histogram.Read();
  EXPECT_EQ(counts.by_class[0], 2u);
  EXPECT_EQ(counts.by_class[1], 1u);
  EXPECT_EQ(counts.by_class[13], 1u);
  EXPECT_EQ(counts.by_class[16], 1u);
  EXPECT_EQ(counts.total(), 5u);
  EXPECT_EQ(counts.sum, absl::Microseconds(101) + absl::Milliseconds(700) + absl::Seconds(3600));
}

TEST(LatencyHistogramTest, BoundsAscend) {
  const auto bounds = LatencyBounds();
  for (size_t i = 1; i < bounds.size(); ++i) EXPECT_LT(bounds[i - 1], bounds[i]);
}

TEST(LatencyHistogramTest, LosesNothingToOtherThreads) {
  LatencyHistogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < 10'000; ++i) histogram.Count(absl::Microseconds(10));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().by_class[0], 40'000u);
  EXPECT_EQ(histogram.Read().sum, absl::Milliseconds(400));
}

}  // namespace
}  // namespace cistern
