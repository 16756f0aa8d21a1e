#include "tools/replay/random.h"

#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

// The first outputs for seed 1234567, as published with the algorithm's reference program.
TEST(RandomTest, IsSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
  EXPECT_EQ(random.Next(), 9817491932198370423u);
}

TEST(RandomTest, ExponentialHasItsMean) {
  Random random(1);
  uint64_t sum = 0;
  for (int i = 0; i < 20000; ++i) sum += random.Exponential(1000);
  // Standard error of the mean: 1000 / sqrt(20000), about 7; rounding down costs 0.5.
  EXPECT_NEAR(static_cast<double>(sum) / 20000, 1000, 40);
}

}  // namespace
}  // namespace cistern::replay
