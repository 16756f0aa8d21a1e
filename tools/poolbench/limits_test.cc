// The limits measure something: they move bytes and end.
#include "tools/poolbench/limits.h"

#include "gtest/gtest.h"
#include "tools/poolbench/threads.h"

namespace cistern::poolbench {
namespace {

TEST(LimitsTest, ALookupsBytesAreSixteenAKeyThereAndTwoAndABitBack) {
  EXPECT_EQ(LookupBytes(1024).request, 64u + 16384);
  EXPECT_EQ(LookupBytes(1024).reply, 64u + 128 + 2048);
}

TEST(LimitsTest, AGetsBytesAreTheChunksBack) {
  EXPECT_EQ(GetBytes(1, 4096).request, 80u);
  EXPECT_EQ(GetBytes(1, 4096).reply, 64u + 41 + 4096);
}

TEST(LimitsTest, TheBarePairRunsOnSharesThatAreNoMultipleOfAPiece) {
  const auto pair = MakeTcpPair((3 << 20) + 4096, 3, 2, Clock::Real());
  ASSERT_TRUE(pair.ok());
  const auto round = (*pair)->Run(absl::Milliseconds(50));
  ASSERT_TRUE(round.ok()) << round.status();
  EXPECT_GT(round->rate, 0);
}

TEST(LimitsTest, CopiesRunOnSetsSmallerThanAPart) {
  for (const bool digest : {false, true}) {
    const auto copy = MakeCopy(4096, digest, 2, Clock::Real());
    ASSERT_TRUE(copy.ok());
    const auto round = (*copy)->Run(absl::Milliseconds(20));
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_GT(round->rate, 0);
  }
}

TEST(LimitsTest, TheEchoesAnswerAndTimeEachCall) {
  const auto bare = MakeTcpEcho(LookupBytes(64), 64, 2, Clock::Real());
  ASSERT_TRUE(bare.ok());
  const auto grpc = MakeGrpcEcho(LookupBytes(64), 64, 2, Clock::Real());
  ASSERT_TRUE(grpc.ok());
  for (Measurement* echo : {bare->get(), grpc->get()}) {
    const auto round = echo->Run(absl::Milliseconds(50));
    ASSERT_TRUE(round.ok()) << round.status();
    EXPECT_GT(round->rate, 0);
    EXPECT_GT(round->calls, 0u);
    EXPECT_EQ(round->latency.count(), round->calls);
  }
}

TEST(RunThreadsTest, SumsTheUnitsAndGivesTheFirstError) {
  const auto sum = RunThreads(3, Clock::Real(), [](uint64_t i) -> absl::StatusOr<Work> {
    Work work;
    work.units = static_cast<double>(i + 1);
    work.calls = 1;
    work.latency.Record(absl::Microseconds(1));
    return work;
  });
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->units, 6);
  EXPECT_EQ(sum->calls, 3u);
  EXPECT_EQ(sum->latency.count(), 3u);
  const auto error = RunThreads(2, Clock::Real(), [](uint64_t i) -> absl::StatusOr<Work> {
    if (i == 1) return absl::NotFoundError("x");
    return Work();
  });
  EXPECT_EQ(error.status(), absl::NotFoundError("x"));
}

// A clock that only its user moves: two threads, one of which does not count 4 of its 10 seconds.
TEST(RunThreadsTest, LeavesOutWhatABodyDoesNotWantCounted) {
  FakeClock clock;
  const auto work = RunThreads(2, clock, [&](uint64_t i) -> absl::StatusOr<Work> {
    Work done;
    if (i == 0) return done;
    clock.Advance(absl::Seconds(10));
    done.elapsed = absl::Seconds(4);
    return done;
  });
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->elapsed, absl::Seconds(8));  // 10 less the mean of 0 and 4
}

}  // namespace
}  // namespace cistern::poolbench
