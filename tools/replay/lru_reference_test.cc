#include "tools/replay/lru_reference.h"

#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

Request Of(std::vector<uint64_t> blocks) {
  return {0, static_cast<uint32_t>(kBlockTokens * blocks.size() - 12), 0, std::move(blocks)};
}

// By hand, room for 3. {1,2}: two misses; holds 1 2. {1,3}: 1 hits; holds 1 3 2 -> after the
// inserts, oldest first: 2 1 3. {2,4}: 2 hits, 4 takes the place of 1: 3 2 4. {1,2}: 1 misses, so
// the run is 0 although 2 hits; 1 is inserted in the place of 3.
TEST(LruReferenceTest, FollowsASmallExample) {
  const LruResult result = ReplayExactLru({Of({1, 2}), Of({1, 3}), Of({2, 4}), Of({1, 2})}, 3);
  EXPECT_EQ(result.chunks_looked_up, 8u);
  EXPECT_EQ(result.chunk_hits, 3u);
  EXPECT_EQ(result.prefix_hits, 2u);
  EXPECT_EQ(result.prefix_hit_tokens, 1024u);
  EXPECT_EQ(result.evictions, 2u);
}

TEST(LruReferenceTest, HoldsNothingWithoutRoom) {
  const LruResult result = ReplayExactLru({Of({1}), Of({1})}, 0);
  EXPECT_EQ(result.prefix_hits, 0u);
  EXPECT_EQ(result.evictions, 0u);
}

// From an independent Python program (an OrderedDict and its move_to_end).
TEST(LruReferenceTest, GivesTheFiguresOfTheRealTrace) {
  const auto workload = ReadTraceFile("tests/data/kv_trace_2000.jsonl", 0);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const LruResult small = ReplayExactLru(*workload, 5000);
  EXPECT_EQ(small.chunk_hits, 6280u);
  EXPECT_EQ(small.prefix_hits, 6083u);
  EXPECT_EQ(small.prefix_hit_tokens, 3112689u);
  EXPECT_EQ(small.evictions, 43279u);
  const LruResult all = ReplayExactLru(*workload, 1'000'000);
  EXPECT_EQ(all.prefix_hits, 15771u);
  EXPECT_EQ(all.prefix_hit_tokens, 8070959u);
  EXPECT_EQ(all.evictions, 0u);
}

}  // namespace
}  // namespace cistern::replay
