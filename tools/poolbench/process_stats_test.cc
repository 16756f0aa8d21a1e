#include "tools/poolbench/process_stats.h"

#include <unistd.h>

#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

TEST(ProcessStatsTest, FindsTheTimesBehindANameWithAnything) {
  const std::string stat =
      "77 (a) b (c) S 1 77 77 0 -1 4194560 1 2 3 4 120 30 5 6 20 0 9 0 1000 5000 60\n";
  ASSERT_TRUE(CpuTicksOf(stat).ok());
  EXPECT_EQ(*CpuTicksOf(stat), 150u);
}

TEST(ProcessStatsTest, RefusesWhatTheKernelDoesNotWrite) {
  EXPECT_FALSE(CpuTicksOf("").ok());
  EXPECT_FALSE(CpuTicksOf("77 (a) S 1 2").ok());
  EXPECT_FALSE(ResidentPagesOf("12").ok());
  EXPECT_EQ(*ResidentPagesOf("1000 321 5 1 0 9 0\n"), 321u);
}

TEST(ProcessStatsTest, MeasuresThisProcess) {
  const uint64_t before = *ResidentBytes(getpid());
  const std::vector<char> memory(64 << 20, 'x');
  EXPECT_GE(*ResidentBytes(getpid()), before + (48 << 20));
  EXPECT_EQ(memory[1 << 20], 'x');
  const double cpu = *CpuSeconds(getpid());
  uint64_t sum = 0;
  // Until the kernel has counted 50 ms more, or 10 s have passed.
  const MonoTime end = Clock::Real().Mono() + absl::Seconds(10);
  while (*CpuSeconds(getpid()) < cpu + 0.05 && Clock::Real().Mono() < end) {
    for (uint64_t i = 0; i < 100'000; ++i) sum += i * sum + 1;
  }
  EXPECT_GE(*CpuSeconds(getpid()), cpu + 0.05) << sum;
  EXPECT_EQ(CpuSeconds(-1).status().code(), absl::StatusCode::kNotFound);
}

TEST(DescribeMachineTest, ReadsTheKernelsFiles) {
  EXPECT_EQ(DescribeMachine("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t: a\n",
                            "MemTotal:       16777216 kB\nMemFree: 1 kB\n", 2),
            "Fast CPU @ 3 GHz, 2 cores, 16.0 GiB");
  EXPECT_EQ(DescribeMachine("", "", 1), "unknown processor, 1 cores, 0 B");
}

}  // namespace
}  // namespace cistern::poolbench
