#include "master/placement.h"

#include <vector>

#include "base/test_util.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;

PlacementCandidate Store(uint16_t index, uint64_t free_bytes, int age_s, bool same_host = false) {
  return {StoreIndex(index), 64 * kGiB, free_bytes, absl::Seconds(age_s), same_host};
}

std::vector<uint16_t> Stores(const std::vector<PlacementRun>& runs) {
  std::vector<uint16_t> out;
  for (const PlacementRun& run : runs) out.push_back(run.store.value);
  return out;
}

PlacementRequest Absent(uint64_t bytes) {
  PlacementRequest request;
  request.chain_chunks = 10;
  request.absent_bytes = bytes;
  return request;
}

PlacementRequest After(uint16_t ancestor, uint64_t present, uint64_t chain) {
  PlacementRequest request;
  request.chain_chunks = chain;
  request.present_chunks = present;
  request.ancestor = StoreIndex(ancestor);
  request.absent_bytes = kMiB;
  return request;
}

TEST(PlacementTest, NoCandidatesNoRuns) {
  EXPECT_TRUE(PlacementPolicy::Choose(Absent(kMiB), {}).empty());
}

TEST(PlacementTest, MostFreeBytesWhileAnyStoreIsBelowItsLowWatermark) {
  const std::vector<PlacementCandidate> stores = {Store(0, 10 * kMiB, 900), Store(1, 30 * kMiB, 1),
                                                  Store(2, 0, 5000)};
  EXPECT_EQ(Stores(PlacementPolicy::Choose(Absent(kMiB), stores)), (std::vector<uint16_t>{1}));
}

TEST(PlacementTest, OldestOfTheOldestWhenAllAreFull) {
  const std::vector<PlacementCandidate> stores = {Store(0, 0, 100), Store(1, 0, 300),
                                                  Store(2, 0, 200)};
  EXPECT_EQ(Stores(PlacementPolicy::Choose(Absent(kMiB), stores)), (std::vector<uint16_t>{1}));
}

TEST(PlacementTest, OwnHostWinsWithinTenPercent) {
  EXPECT_EQ(Stores(PlacementPolicy::Choose(
                Absent(kMiB), std::vector{Store(0, 100 * kMiB, 0), Store(1, 90 * kMiB, 0, true)})),
            (std::vector<uint16_t>{1}));
  EXPECT_EQ(Stores(PlacementPolicy::Choose(
                Absent(kMiB), std::vector{Store(0, 100 * kMiB, 0), Store(1, 89 * kMiB, 0, true)})),
            (std::vector<uint16_t>{0}));
  EXPECT_EQ(Stores(PlacementPolicy::Choose(Absent(kMiB),
                                           std::vector{Store(0, 0, 100), Store(1, 0, 91, true)})),
            (std::vector<uint16_t>{1}));
}

TEST(PlacementTest, FollowsTheAncestorThatHoldsHalfTheChain) {
  const std::vector<PlacementCandidate> stores = {Store(0, 0, 100), Store(1, 0, 50)};
  EXPECT_EQ(Stores(PlacementPolicy::Choose(After(1, 5, 10), stores)), (std::vector<uint16_t>{1}));
  EXPECT_EQ(Stores(PlacementPolicy::Choose(After(1, 4, 10), stores)), (std::vector<uint16_t>{0}))
      << "less than half is present";
}

TEST(PlacementTest, DoesNotFollowIntoAStoreWhoseOldestIsYoung) {
  const std::vector<PlacementCandidate> stores = {Store(0, 0, 100), Store(1, 0, 49)};
  EXPECT_EQ(Stores(PlacementPolicy::Choose(After(1, 9, 10), stores)), (std::vector<uint16_t>{0}));
}

TEST(PlacementTest, DoesNotFollowIntoAStoreThatCannotTakeMore) {
  const std::vector<PlacementCandidate> stores = {Store(0, 0, 100)};
  EXPECT_EQ(Stores(PlacementPolicy::Choose(After(1, 9, 10), stores)), (std::vector<uint16_t>{0}));
}

TEST(PlacementTest, SmallBatchesStayInOneStore) {
  // A sixteenth of 64 GiB is 4 GiB.
  const std::vector<PlacementCandidate> stores = {Store(0, 9 * kGiB, 0), Store(1, 8 * kGiB, 0)};
  const auto runs = PlacementPolicy::Choose(Absent(900 * kMiB), stores);
  ASSERT_EQ(Stores(runs), (std::vector<uint16_t>{0}));
  EXPECT_EQ(runs[0].bytes, 900 * kMiB);
}

TEST(PlacementTest, BatchThatIsMuchOfAStoreIsCutInTwo) {
  std::vector<PlacementCandidate> stores = {Store(0, 9 * kMiB, 0), Store(1, 8 * kMiB, 0),
                                            Store(2, 7 * kMiB, 0)};
  for (PlacementCandidate& store : stores) store.capacity_bytes = 16 * kMiB;
  const auto runs = PlacementPolicy::Choose(Absent(6 * kMiB), stores);
  ASSERT_EQ(Stores(runs), (std::vector<uint16_t>{0, 1}));
  EXPECT_EQ(runs[0].bytes, 3 * kMiB);
  EXPECT_EQ(runs[1].bytes, 3 * kMiB);
}

TEST(PlacementTest, MoreThanAGibibyteMayTakeFourStores) {
  std::vector<PlacementCandidate> stores;
  for (uint16_t i = 0; i < 6; ++i) {
    stores.push_back(Store(i, (10 - i) * kGiB, 0));
    stores.back().capacity_bytes = 16 * kGiB;  // runs of 1 GiB
  }
  const auto runs = PlacementPolicy::Choose(Absent(8 * kGiB), stores);
  ASSERT_EQ(Stores(runs), (std::vector<uint16_t>{0, 1, 2, 3}));
  uint64_t sum = 0;
  for (const PlacementRun& run : runs) sum += run.bytes;
  EXPECT_EQ(sum, 8 * kGiB);
  EXPECT_EQ(runs[0].bytes, 2 * kGiB);
}

TEST(PlacementTest, FewerStoresThanWidthTakeEverything) {
  const std::vector<PlacementCandidate> stores = {Store(0, 0, 10)};
  const auto runs = PlacementPolicy::Choose(Absent(40 * kGiB), stores);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].bytes, 40 * kGiB);
}

}  // namespace
}  // namespace cistern::master
