#include "master/lease_table.h"

#include <cstring>
#include <vector>

#include "base/test_util.h"

namespace cistern::master {
namespace {

constexpr StoreIndex kA(0), kB(7);

class LeaseTableTest : public testing::Test {
 protected:
  LeaseTableTest() : LeaseTableTest(3) {}
  explicit LeaseTableTest(uint32_t max)
      : table_({max, [this](void* out, size_t n) { std::memset(out, ++drawn_, n); }}) {}

  static MonoTime At(int64_t ms) { return MonoTime{absl::Milliseconds(ms)}; }

  int drawn_ = 0;
  std::vector<LeasedEntry> entries_;
  uint32_t until_ = 0;
  LeaseTable table_;
};

TEST_F(LeaseTableTest, ExpiredLeaseGivesItsChargeBack) {
  const auto lease = table_.Begin(At(11'000), At(1'000));
  EXPECT_TRUE(table_.Charge(lease, kA, 600, 1000));
  EXPECT_TRUE(table_.Charge(lease, kB, 50, 1000));
  EXPECT_TRUE(table_.Charge(lease, kA, 100, 1000));
  EXPECT_EQ(table_.charged_bytes(kA), 700u);
  EXPECT_EQ(table_.charged_bytes(), 750u);
  table_.Expire(At(10'999), 100);
  EXPECT_EQ(table_.live(), 1u);
  table_.Expire(At(11'000), 100);
  EXPECT_EQ(table_.live(), 0u);
  EXPECT_EQ(table_.charged_bytes(kA), 0u);
  EXPECT_EQ(table_.charged_bytes(kB), 0u);
}

TEST_F(LeaseTableTest, ChargeStopsAtTheShare) {
  const auto one = table_.Begin(At(11'000), At(1'000));
  const auto two = table_.Begin(At(11'000), At(1'000));
  EXPECT_TRUE(table_.Charge(one, kA, 600, 1000));
  EXPECT_FALSE(table_.Charge(two, kA, 401, 1000));
  EXPECT_TRUE(table_.Charge(two, kA, 400, 1000));
  EXPECT_FALSE(table_.Charge(two, kA, 1, 1000));
  EXPECT_TRUE(table_.Charge(two, kB, 1, 1000)) << "the share is each store's own";
}

TEST_F(LeaseTableTest, ReleaseEndsItsOwnChargeOnly) {
  const auto one = table_.Begin(At(11'000), At(1'000));
  const auto two = table_.Begin(At(11'000), At(1'000));
  table_.Charge(one, kA, 600, 10'000);
  table_.Charge(two, kA, 300, 10'000);
  table_.SetEntries(one, {{EntryIndex(5), 50}, {EntryIndex(6), 60}});
  table_.SetEntries(two, {{EntryIndex(5), 50}});
  EXPECT_TRUE(table_.Release(table_.id(one), At(2'000), &entries_, &until_));
  EXPECT_EQ(table_.charged_bytes(kA), 300u);
  ASSERT_EQ(entries_.size(), 2u);
  EXPECT_EQ(entries_[1].entry, EntryIndex(6));
  EXPECT_EQ(entries_[1].version_low, 60);
  EXPECT_EQ(table_.live(), 1u);
}

TEST_F(LeaseTableTest, SecondReleaseAndUnknownIdsAreFalse) {
  const auto lease = table_.Begin(At(11'000), At(1'000));
  const LeaseId id = table_.id(lease);
  EXPECT_TRUE(table_.Release(id, At(2'000), &entries_, &until_));
  EXPECT_FALSE(table_.Release(id, At(2'000), &entries_, &until_));
  EXPECT_FALSE(table_.Release(LeaseId(), At(2'000), &entries_, &until_));
  EXPECT_TRUE(table_.id(lease).IsZero());
  EXPECT_FALSE(table_.Charge(lease, kA, 1, 1000)) << "a handle of a lease that has ended";
}

TEST_F(LeaseTableTest, ReleaseAfterItsTimeHandsOutNoEntries) {
  const auto lease = table_.Begin(At(11'000), At(1'000));
  table_.SetEntries(lease, {{EntryIndex(5), 50}});
  EXPECT_FALSE(table_.Release(table_.id(lease), At(11'000), &entries_, &until_));
  EXPECT_TRUE(entries_.empty());
  EXPECT_EQ(table_.live(), 0u);
}

TEST_F(LeaseTableTest, CountIsBounded) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(table_.Begin(At(11'000), At(1'000)).none());
  EXPECT_TRUE(table_.Begin(At(11'000), At(1'000)).none());
  table_.Expire(At(11'000), 100);
  EXPECT_FALSE(table_.Begin(At(21'000), At(11'000)).none());
}

TEST_F(LeaseTableTest, TimeIsRoundedUpToATickAndCapped) {
  const auto lease = table_.Begin(At(1'050), At(1'000));
  EXPECT_EQ(table_.until_tick(lease), 11u);  // 1.1 s
  const auto longest = table_.Begin(At(100'000'000), At(1'000));
  EXPECT_EQ(table_.until_tick(longest), 6'010u);  // 1 s + 10 minutes
  EXPECT_TRUE(table_.Begin(At(1'000), At(1'000)).none()) << "over before it began";
}

TEST_F(LeaseTableTest, ExpireDoesNotDoMoreThanItMay) {
  for (int i = 0; i < 3; ++i) table_.Begin(At(2'000), At(1'000));
  EXPECT_TRUE(table_.Expire(At(5'000), 2));
  EXPECT_EQ(table_.live(), 1u);
  EXPECT_FALSE(table_.Expire(At(5'000), 2));
  EXPECT_EQ(table_.live(), 0u);
}

TEST_F(LeaseTableTest, LeasesBegunAfterALongSilenceEndInTime) {
  table_.Expire(At(1'000), 100);
  const auto lease = table_.Begin(At(10'000'000), At(9'990'000));
  table_.Expire(At(9'999'900), 100);
  EXPECT_FALSE(table_.id(lease).IsZero());
  table_.Expire(At(10'000'000), 100);
  EXPECT_TRUE(table_.id(lease).IsZero());
}

}  // namespace
}  // namespace cistern::master
