// The limits measure something: they move bytes and end.
#include "tools/poolbench/limits.h"

#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

TEST(LimitsTest, ALookupsBytesAreSixteenAKeyThereAndTwoAndABitBack) {
  EXPECT_EQ(LookupBytes(1024).request, 64u + 16384);
  EXPECT_EQ(LookupBytes(1024).reply, 64u + 128 + 2048);
}

TEST(LimitsTest, TheBarePairRunsOnSharesThatAreNoMultipleOfAPiece) {
  const auto pair = MakeTcpPair((3 << 20) + 4096, 3, 2, Clock::Real());
  ASSERT_TRUE(pair.ok());
  const auto rate = (*pair)->Round(absl::Milliseconds(50));
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
}

TEST(LimitsTest, TheEchoesAnswer) {
  const auto bare = MakeTcpEcho(64, 2, Clock::Real());
  ASSERT_TRUE(bare.ok());
  EXPECT_GT(*(*bare)->Round(absl::Milliseconds(20)), 0);
  const auto grpc = MakeGrpcEcho(64, 2, Clock::Real());
  ASSERT_TRUE(grpc.ok());
  EXPECT_GT(*(*grpc)->Round(absl::Milliseconds(20)), 0);
}

TEST(RunThreadsTest, SumsTheUnitsAndGivesTheFirstError) {
  const auto sum = RunThreads(3, Clock::Real(), [](uint64_t i) -> absl::StatusOr<double> {
    return static_cast<double>(i + 1);
  });
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->units, 6);
  const auto error = RunThreads(2, Clock::Real(), [](uint64_t i) -> absl::StatusOr<double> {
    if (i == 1) return absl::NotFoundError("x");
    return 1.0;
  });
  EXPECT_EQ(error.status(), absl::NotFoundError("x"));
}

}  // namespace
}  // namespace cistern::poolbench
