#include "tools/replay/chat_generator.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

TEST(ChatGeneratorTest, SameSeedSameWorkloadAndAnotherSeedAnother) {
  const ChatOptions options{.requests = 500, .seed = 3};
  EXPECT_EQ(GenerateChat(options), GenerateChat(options));
  EXPECT_NE(GenerateChat(options), GenerateChat({.requests = 500, .seed = 4}));
}

TEST(ChatGeneratorTest, MakesTheRequestsAskedForInOrderOfArrival) {
  const Workload workload = GenerateChat({.requests = 777, .seed = 1});
  ASSERT_EQ(workload.size(), 777u);
  for (size_t i = 1; i < workload.size(); ++i) {
    EXPECT_GE(workload[i].timestamp_ms, workload[i - 1].timestamp_ms);
  }
}

TEST(ChatGeneratorTest, BlocksCoverThePromptAndAreDistinctWithinIt) {
  for (const Request& request : GenerateChat({.requests = 500, .seed = 2})) {
    EXPECT_EQ(request.blocks.size(), (request.input_tokens + kBlockTokens - 1) / kBlockTokens);
    const absl::flat_hash_set<uint64_t> distinct(request.blocks.begin(), request.blocks.end());
    EXPECT_EQ(distinct.size(), request.blocks.size());
  }
}

// A block stands for its prefix too: two requests that share one share all before it.
TEST(ChatGeneratorTest, ABlockAlwaysFollowsTheSameBlock) {
  absl::flat_hash_map<uint64_t, uint64_t> before;
  for (const Request& request : GenerateChat({.requests = 1000, .seed = 5})) {
    uint64_t previous = UINT64_MAX;
    for (uint64_t block : request.blocks) {
      const auto [it, inserted] = before.try_emplace(block, previous);
      EXPECT_EQ(it->second, previous);
      previous = block;
    }
  }
}

// What makes it worth replaying: much of what is asked for was asked for before.
TEST(ChatGeneratorTest, AboutAsMuchRecursAsInChatServices) {
  const WorkloadSummary summary = Summarize(GenerateChat({.requests = 6000, .seed = 1}));
  const double share_new =
      static_cast<double>(summary.distinct_chunks) / static_cast<double>(summary.chunks);
  RecordProperty("share_new", std::to_string(share_new));
  EXPECT_GT(share_new, 0.2);
  EXPECT_LT(share_new, 0.5);
}

}  // namespace
}  // namespace cistern::replay
