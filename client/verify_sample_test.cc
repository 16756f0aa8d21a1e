#include "client/verify_sample.h"

#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(VerifySampleTest, OneInSixteenAndNeverTheSameOnesOnly) {
  VerifySample sample(42);
  constexpr int kChunks = 1'000;
  constexpr int kGets = 160;
  int drawn[kChunks] = {};
  int total = 0;
  for (int get = 0; get < kGets; ++get) {
    for (int& chunk : drawn) {
      const bool checked = sample.Checks(Verify::kSampled);
      chunk += checked ? 1 : 0;
      total += checked ? 1 : 0;
    }
  }
  // A binomial of 160,000 draws: mean 10,000, deviation 97. Six of them are 580.
  EXPECT_NEAR(total, kChunks * kGets / 16, 600);
  // Each chunk: mean 10, deviation 3. With this seed none of them escapes all 160 gets.
  for (const int n : drawn) {
    EXPECT_GT(n, 0);
    EXPECT_LT(n, 40);
  }
}

TEST(VerifySampleTest, AlwaysAndOffAreNoMatterOfChance) {
  VerifySample sample(1);
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_TRUE(sample.Checks(Verify::kAlways));
    EXPECT_FALSE(sample.Checks(Verify::kOff));
  }
}

}  // namespace
}  // namespace cistern
