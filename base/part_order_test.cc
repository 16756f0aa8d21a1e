#include "base/part_order.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

// "chunk:part", in order.
std::string Walk(const std::vector<PartInterval>& chunks) {
  PartOrder order(chunks);
  std::string out;
  for (PartOrder::Step step; order.Next(&step);) {
    out += std::to_string(step.chunk) + ":" + std::to_string(step.part) + " ";
  }
  PartOrder::Step step;
  EXPECT_FALSE(order.Next(&step));  // the end stays the end
  return out;
}

TEST(PartOrderTest, EachPartOfAllChunksBeforeTheNext) {
  EXPECT_EQ(Walk({{0, 2}, {0, 2}, {0, 2}}), "0:0 1:0 2:0 0:1 1:1 2:1 ");
}

TEST(PartOrderTest, ShorterChunksDropOut) {
  EXPECT_EQ(Walk({{0, 1}, {0, 3}, {0, 2}}), "0:0 1:0 2:0 1:1 2:1 1:2 ");
}

TEST(PartOrderTest, ChunksJoinAtTheirFirstPart) {
  EXPECT_EQ(Walk({{1, 3}, {0, 2}, {1, 2}}), "1:0 0:1 1:1 2:1 0:2 ");
}

TEST(PartOrderTest, PartsThatNobodyHasAreJumpedOver) {
  EXPECT_EQ(Walk({{60'000, 60'002}, {1, 2}, {60'000, 60'001}}), "1:1 0:60000 2:60000 0:60001 ");
}

TEST(PartOrderTest, NothingInNothingOut) {
  EXPECT_EQ(Walk({}), "");
  EXPECT_EQ(Walk({{3, 3}}), "");
}

// By the definition: all (part, chunk) pairs, sorted.
TEST(PartOrderTest, AgreesWithASort) {
  std::vector<PartInterval> chunks;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  uint64_t state = 7;
  const auto draw = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state >> 33) % below);
  };
  for (uint32_t c = 0; c < 200; ++c) {
    const uint32_t first = draw(40);
    const PartInterval interval{first, first + 1 + draw(30)};
    chunks.push_back(interval);
    for (uint32_t p = interval.first; p < interval.end; ++p) pairs.emplace_back(p, c);
  }
  std::sort(pairs.begin(), pairs.end());
  std::string expected;
  for (const auto& [part, chunk] : pairs) {
    expected += std::to_string(chunk) + ":" + std::to_string(part) + " ";
  }
  EXPECT_EQ(Walk(chunks), expected);
}

// One chunk of many parts among many of one: each round costs what it gives.
TEST(PartOrderTest, LongTailIsCheap) {
  std::vector<PartInterval> chunks(32'767, {0, 1});
  chunks.push_back({0, 65'536});
  PartOrder order(chunks);
  uint64_t steps = 0;
  for (PartOrder::Step step; order.Next(&step);) ++steps;
  EXPECT_EQ(steps, 32'767u + 65'536u);
}

}  // namespace
}  // namespace cistern
