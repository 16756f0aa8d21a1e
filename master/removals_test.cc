#include "master/removals.h"

#include <vector>

#include "base/test_util.h"

namespace cistern::master {
namespace {

constexpr StoreIndex kA(1), kB(2);

TEST(RemovalTrackerTest, FinishesWhenSealedAndEveryReplicaIsReported) {
  RemovalTracker tracker;
  const RemovalTicket ticket = tracker.Begin();
  tracker.Wait(ticket, kA, Version(10));
  tracker.Wait(ticket, kB, Version(10));
  tracker.Reported(kA, Version(10));
  tracker.Reported(kB, Version(10));
  EXPECT_TRUE(tracker.TakeFinished().empty()) << "more may be added";
  tracker.Seal(ticket);
  EXPECT_EQ(tracker.TakeFinished(), std::vector{ticket});
  EXPECT_TRUE(tracker.TakeFinished().empty());
  EXPECT_EQ(tracker.open(), 0u);
}

TEST(RemovalTrackerTest, AnotherVersionOrStoreIsNotTheOneWaitedFor) {
  RemovalTracker tracker;
  const RemovalTicket ticket = tracker.Begin();
  tracker.Wait(ticket, kA, Version(10));
  tracker.Seal(ticket);
  tracker.Reported(kA, Version(11));
  tracker.Reported(kB, Version(10));
  EXPECT_TRUE(tracker.TakeFinished().empty());
  EXPECT_EQ(tracker.waiting(ticket), 1u);
  tracker.Reported(kA, Version(10));
  EXPECT_EQ(tracker.TakeFinished(), std::vector{ticket});
}

TEST(RemovalTrackerTest, TwoTicketsCanWaitForOneReplica) {
  RemovalTracker tracker;
  const RemovalTicket one = tracker.Begin();
  const RemovalTicket two = tracker.Begin();
  for (const RemovalTicket ticket : {one, two}) {
    tracker.Wait(ticket, kA, Version(10));
    tracker.Seal(ticket);
  }
  tracker.Reported(kA, Version(10));
  EXPECT_EQ(tracker.TakeFinished(), (std::vector{one, two}));
}

TEST(RemovalTrackerTest, NothingToWaitForFinishesAtTheSeal) {
  RemovalTracker tracker;
  const RemovalTicket ticket = tracker.Begin();
  tracker.Seal(ticket);
  EXPECT_EQ(tracker.TakeFinished(), std::vector{ticket});
}

TEST(RemovalTrackerTest, LostStoreEndsTheWaitForIt) {
  RemovalTracker tracker;
  const RemovalTicket ticket = tracker.Begin();
  tracker.Wait(ticket, kA, Version(1));
  tracker.Wait(ticket, kA, Version(2));
  tracker.Wait(ticket, kB, Version(1));
  tracker.Seal(ticket);
  tracker.StoreLost(kA);
  EXPECT_TRUE(tracker.TakeFinished().empty());
  tracker.StoreLost(kB);
  EXPECT_EQ(tracker.TakeFinished(), std::vector{ticket});
}

TEST(RemovalTrackerTest, ForgottenTicketNeverFinishes) {
  RemovalTracker tracker;
  const RemovalTicket ticket = tracker.Begin();
  tracker.Wait(ticket, kA, Version(1));
  tracker.Seal(ticket);
  tracker.Forget(ticket);
  tracker.Reported(kA, Version(1));
  EXPECT_TRUE(tracker.TakeFinished().empty());
}

}  // namespace
}  // namespace cistern::master
