#include "master/removal_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace cistern::master {
namespace {

MonoTime At(int seconds) { return MonoTime{absl::Seconds(seconds)}; }

std::unique_ptr<Removal> Until(MonoTime deadline) {
  return std::make_unique<Removal>(wire::RemoveRequest(), deadline,
                                   [](absl::Status, wire::RemoveReply&, bool) {});
}

TEST(RemovalTableTest, WaitingRemovalIsTakenOnceByItsTicket) {
  RemovalTable table(10);
  auto removal = Until(At(100));
  Removal* const raw = removal.get();
  table.AddWaiting(RemovalTicket(7), std::move(removal));
  EXPECT_EQ(table.TakeWaiting(RemovalTicket(8)), nullptr);
  EXPECT_EQ(table.TakeWaiting(RemovalTicket(7)).get(), raw);
  EXPECT_EQ(table.TakeWaiting(RemovalTicket(7)), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(RemovalTableTest, ExpiredOnesLeaveAtTheirDeadlineWhetherWaitingOrBlocked) {
  RemovalTable table(10);
  table.AddWaiting(RemovalTicket(1), Until(At(5)));
  table.AddWaiting(RemovalTicket(2), Until(At(6)));
  table.AddBlocked(Until(At(5)));
  table.AddBlocked(Until(At(6)));
  EXPECT_TRUE(table.TakeExpired(At(4)).empty());
  const auto expired = table.TakeExpired(At(5));
  ASSERT_EQ(expired.size(), 2u);
  for (const auto& removal : expired) EXPECT_EQ(removal->deadline, At(5));
  EXPECT_EQ(table.TakeWaiting(RemovalTicket(1)), nullptr);
  EXPECT_NE(table.TakeWaiting(RemovalTicket(2)), nullptr);
  EXPECT_EQ(table.TakeBlocked().size(), 1u);
}

TEST(RemovalTableTest, AbandonedOneLeavesBeforeItsDeadline) {
  RemovalTable table(10);
  bool gone = false;
  auto removal = Until(At(100));
  removal->abandoned = [&gone] { return gone; };
  table.AddWaiting(RemovalTicket(1), std::move(removal));
  EXPECT_TRUE(table.TakeExpired(At(1)).empty());
  gone = true;
  EXPECT_EQ(table.TakeExpired(At(1)).size(), 1u);
}

TEST(RemovalTableTest, IsFullWithWaitingAndBlockedOnesTogether) {
  RemovalTable table(2);
  table.AddWaiting(RemovalTicket(1), Until(At(5)));
  EXPECT_FALSE(table.full());
  table.AddBlocked(Until(At(5)));
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.TakeBlocked().size(), 1u);
  EXPECT_FALSE(table.full());
}

}  // namespace
}  // namespace cistern::master
