#include "store/expiry_index.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

class ExpiryIndexTest : public testing::Test {
 protected:
  std::vector<uint32_t> Take(uint32_t now, size_t max = 1000) {
    std::vector<ExpiryIndex::Item> items;
    removed_ = index_.TakeDue(now, max, live_, &items);
    std::vector<uint32_t> entries;
    for (const ExpiryIndex::Item& item : items) entries.push_back(item.entry);
    return entries;
  }
  ExpiryIndex index_;
  std::set<uint32_t> dead_;
  ExpiryIndex::IsLive live_ = [this](const ExpiryIndex::Item& item) {
    return !dead_.contains(item.entry);
  };
  size_t removed_ = 0;
};

TEST_F(ExpiryIndexTest, GivesWhatIsDueAndNoMore) {
  index_.Add(200, {2, Version(1)});
  index_.Add(100, {1, Version(1)});
  index_.Add(300, {3, Version(1)});
  EXPECT_EQ(index_.next_due(), 100u);
  EXPECT_TRUE(Take(99).empty());
  EXPECT_EQ(Take(200), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(index_.next_due(), 300u);
  EXPECT_EQ(Take(1000), std::vector<uint32_t>{3});
  EXPECT_EQ(index_.next_due(), 0u);
}

TEST_F(ExpiryIndexTest, StopsAtTheBoundAndGoesOn) {
  for (uint32_t i = 0; i < 10; ++i) index_.Add(5, {i, Version(1)});
  EXPECT_EQ(Take(5, 4).size(), 4u);
  EXPECT_EQ(Take(5, 4).size(), 4u);
  EXPECT_EQ(Take(5, 4).size(), 2u);
}

TEST_F(ExpiryIndexTest, StaleItemsAreLookedAtButNotGiven) {
  index_.Add(5, {1, Version(1)});
  index_.Add(5, {2, Version(1)});
  dead_.insert(1);
  index_.NoteStale(live_);
  EXPECT_EQ(Take(5), std::vector<uint32_t>{2});
  EXPECT_EQ(removed_, 2u);
}

TEST_F(ExpiryIndexTest, StaleItemsNeverOutnumberTheLiveForLong) {
  constexpr uint32_t kLive = 2000;
  for (uint32_t i = 0; i < kLive; ++i) index_.Add(1'000'000 + i, {i, Version(1)});
  for (uint32_t i = kLive; i < 50'000; ++i) {
    index_.Add(2'000'000 + i, {i, Version(1)});
    dead_.insert(i);
    index_.NoteStale(live_);
    ASSERT_LE(index_.size(), 2 * kLive + 2);
  }
  EXPECT_EQ(Take(3'000'000, 100'000).size(), kLive);
  EXPECT_EQ(index_.size(), 0u);
}

}  // namespace
}  // namespace cistern::store
