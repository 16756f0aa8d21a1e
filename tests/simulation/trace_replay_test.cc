#include "tests/simulation/trace_replay.h"

#include <cmath>
#include <string>

#include "base/test_util.h"

namespace cistern::simulation {
namespace {

// The first 2,000 requests of a real trace, a pool of a fifth of their distinct bytes.
void ExpectAsGoodAsOneLru(ReplayOptions options) {
  ASSERT_OK_AND_ASSIGN(const replay::Workload workload,
                       replay::ReadTraceFile("tests/data/kv_trace_2000.jsonl", 0));
  ASSERT_EQ(workload.size(), 2000u);
  const ReplayResult result = ReplayTrace(workload, options);
  SCOPED_TRACE(FormatReplay(options, result));
  EXPECT_EQ(result.requests, 2000u);
  EXPECT_EQ(result.chunks_looked_up, 54559u);  // grep -o over the file's hash_ids
  EXPECT_GT(result.prefix_hit_ratio(), result.lru_held_ratio - 0.01);
  EXPECT_GT(result.prefix_hit_ratio(), result.lru_pool_ratio - 0.01);
  EXPECT_LT(result.max_fill_deviation(), 0.10);
  for (const double fill : result.fills) {
    EXPECT_GT(fill, 0.80);
    EXPECT_LE(fill, 1.0);
  }
  EXPECT_GT(result.commanded_evictions, 1000u);
  EXPECT_EQ(result.self_evictions, 0u) << "the master keeps ahead of need";
  EXPECT_EQ(result.refused, 0u);
  EXPECT_EQ(result.wrong, 0u);
  EXPECT_EQ(result.differences, "");
  EXPECT_EQ(result.leaks, "");
}

TEST(TraceReplayTest, TwoStoresServeLikeOneLruOfTheirBytes) {
  ReplayOptions options;
  options.stores = 2;
  ExpectAsGoodAsOneLru(options);
}

TEST(TraceReplayTest, EightStoresServeLikeOneLruOfTheirBytes) {
  ReplayOptions options;
  options.stores = 8;
  ExpectAsGoodAsOneLru(options);
}

TEST(TraceReplayTest, PlacingWithTheWholeChainServesAsWell) {
  ReplayOptions options;
  options.stores = 8;
  options.place_whole_chain = true;
  ExpectAsGoodAsOneLru(options);
}

TEST(TraceReplayTest, TheSameSeedGivesTheSameRun) {
  ASSERT_OK_AND_ASSIGN(const replay::Workload workload,
                       replay::ReadTraceFile("tests/data/kv_trace_2000.jsonl", 300));
  ReplayOptions options;
  options.stores = 3;
  options.seed = 7;
  const std::string first = FormatReplay(options, ReplayTrace(workload, options));
  EXPECT_EQ(first, FormatReplay(options, ReplayTrace(workload, options)));
}

}  // namespace
}  // namespace cistern::simulation
