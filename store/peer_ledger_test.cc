#include "store/peer_ledger.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

class FakeConnection final : public transport::ServerConnection {
 public:
  FakeConnection(uint64_t id, uint64_t incarnation) : id_(id) { peer_.incarnation = incarnation; }
  const transport::PeerInfo& peer() const override { return peer_; }
  uint64_t id() const override { return id_; }
  void Cut(const absl::Status& why) override {
    ++cuts;
    last = why;
  }
  int cuts = 0;
  absl::Status last;

 private:
  const uint64_t id_;
  transport::PeerInfo peer_;
};

// A share of 1,000 bytes: over it a peer must take 100 bytes a second, 300 in a period.
class PeerLedgerTest : public testing::Test {
 protected:
  static MonoTime At(double seconds) { return MonoTime{absl::Seconds(seconds)}; }
  static constexpr double kNever = 1e6;

  PeerLedger ledger_{{.share_bytes = 1'000, .period = absl::Seconds(3)}};
  FakeConnection a1_{1, 7};
  FakeConnection a2_{2, 7};  // the same process
  FakeConnection b_{3, 8};
  FakeConnection nameless1_{4, 0};
  FakeConnection nameless2_{5, 0};
};

TEST_F(PeerLedgerTest, WithinItsShareAPeerMayBeAsSlowAsItLikes) {
  auto hold = ledger_.Begin(a1_, 1'000, At(kNever));
  for (int s = 0; s < 1'000; ++s) ledger_.Judge(At(s));
  EXPECT_EQ(a1_.cuts, 0);
}

TEST_F(PeerLedgerTest, OverItsShareAPeerThatStopsIsCutOnAllConnectionsAfterAPeriod) {
  auto first = ledger_.Begin(a1_, 600, At(kNever));
  auto second = ledger_.Begin(a2_, 600, At(kNever));
  auto other = ledger_.Begin(b_, 900, At(kNever));
  ledger_.Judge(At(0));
  ledger_.Judge(At(2.9));
  EXPECT_EQ(a1_.cuts + a2_.cuts, 0);
  ledger_.Judge(At(3));
  EXPECT_EQ(a1_.cuts, 1);
  EXPECT_EQ(a2_.cuts, 1);
  EXPECT_EQ(b_.cuts, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(a1_.last));
  ledger_.Judge(At(4));  // once is enough
  EXPECT_EQ(a1_.cuts, 1);
  EXPECT_EQ(ledger_.totals().cut, 2u);
}

TEST_F(PeerLedgerTest, OverItsShareAPeerThatKeepsThePaceGoesOn) {
  auto hold = ledger_.Begin(a1_, 100'000, At(kNever));
  for (int s = 0; s < 100; ++s) {
    ledger_.Judge(At(s));
    hold.Took(100);
  }
  EXPECT_EQ(a1_.cuts, 0);
  // Then it drips.
  for (int s = 100; s < 110; ++s) {
    ledger_.Judge(At(s));
    hold.Took(90);
  }
  EXPECT_EQ(a1_.cuts, 1);
}

TEST_F(PeerLedgerTest, NobodyNeedBeFasterThanTheLargestPace) {
  PeerLedger ledger({.share_bytes = 1'000, .max_pace_bytes_per_second = 10});
  auto hold = ledger.Begin(a1_, 5'000, At(kNever));
  for (int s = 0; s < 100; ++s) {
    ledger.Judge(At(s));
    hold.Took(10);
  }
  EXPECT_EQ(a1_.cuts, 0);
}

TEST_F(PeerLedgerTest, AShortWhileOverTheShareCountsFromItsBeginning) {
  auto within = ledger_.Begin(a1_, 900, At(kNever));
  for (int s = 0; s < 10; ++s) {
    ledger_.Judge(At(s));
    {
      auto over = ledger_.Begin(a1_, 900, At(kNever));
      ledger_.Judge(At(s + 0.2));
    }
    ledger_.Judge(At(s + 0.4));
  }
  EXPECT_EQ(a1_.cuts, 0);
}

TEST_F(PeerLedgerTest, AnAnswerLongAfterItsDeadlineIsCutHoweverSmall) {
  auto hold = ledger_.Begin(a1_, 1, At(10));
  ledger_.Judge(At(11));
  EXPECT_EQ(a1_.cuts, 0);
  ledger_.Judge(At(11.1));
  EXPECT_EQ(a1_.cuts, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(a1_.last));
}

TEST_F(PeerLedgerTest, ConnectionsThatNameNoProcessStandForThemselves) {
  auto first = ledger_.Begin(nameless1_, 600, At(kNever));
  auto second = ledger_.Begin(nameless2_, 600, At(kNever));
  ledger_.Judge(At(0));
  ledger_.Judge(At(10));
  EXPECT_EQ(nameless1_.cuts + nameless2_.cuts, 0);
}

TEST_F(PeerLedgerTest, EndedHoldsLeaveNothing) {
  {
    auto hold = ledger_.Begin(a1_, 600, At(kNever));
    PeerLedger::Hold moved = std::move(hold);
    hold = ledger_.Begin(a1_, 100, At(kNever));
    EXPECT_EQ(ledger_.totals().held_bytes, 700u);
    EXPECT_EQ(ledger_.totals().peers, 1u);
  }
  EXPECT_EQ(ledger_.totals().held_bytes, 0u);
  EXPECT_EQ(ledger_.totals().peers, 0u);
}

}  // namespace
}  // namespace cistern::store
