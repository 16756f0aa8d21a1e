#include "client/batching.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Item i has 10 * (i + 1) bytes.
uint64_t BytesOf(uint32_t item) { return 10 * (uint64_t{item} + 1); }

TEST(CutIntoRequestsTest, CutsByChunksAndByBytesAndLeavesALargeOneAlone) {
  EXPECT_THAT(CutIntoRequests({0, 1, 2}, {.max_chunks = 2, .max_bytes = 1000}, BytesOf),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(CutIntoRequests({0, 1, 9, 0}, {.max_chunks = 9, .max_bytes = 30}, BytesOf),
              ElementsAre(ElementsAre(0, 1), ElementsAre(9), ElementsAre(0)));
  EXPECT_THAT(CutIntoRequests({}, {}, BytesOf), IsEmpty());
}

TEST(TakeSuffixTest, TakesWhatFitsFromTheEndInOrder) {
  std::vector<uint32_t> items = {5, 0, 1, 2};
  EXPECT_THAT(TakeSuffix(&items, {}, 59, BytesOf), ElementsAre(1, 2));  // 30 + 20, and 10 too many
  EXPECT_THAT(items, ElementsAre(5, 0));
  EXPECT_THAT(TakeSuffix(&items, {}, 70, BytesOf), ElementsAre(5, 0));
  EXPECT_THAT(items, IsEmpty());
  EXPECT_THAT(TakeSuffix(&items, {}, 70, BytesOf), IsEmpty());
}

TEST(TakeSuffixTest, TakesNothingWhereTheLastIsTooLarge) {
  std::vector<uint32_t> items = {0, 9};
  EXPECT_THAT(TakeSuffix(&items, {}, 99, BytesOf), IsEmpty());
  EXPECT_THAT(items, ElementsAre(0, 9));
}

TEST(TakeSuffixTest, KeepsTheRequestsLimits) {
  std::vector<uint32_t> items = {0, 1, 2};
  EXPECT_THAT(TakeSuffix(&items, {.max_chunks = 2}, 1000, BytesOf), ElementsAre(1, 2));
  items = {0, 1, 2};
  EXPECT_THAT(TakeSuffix(&items, {.max_bytes = 30}, 1000, BytesOf), ElementsAre(2));
}

}  // namespace
}  // namespace cistern
