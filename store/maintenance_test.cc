#include "store/maintenance.h"

#include <atomic>
#include <memory>

#include "base/eventually.h"
#include "gtest/gtest.h"
#include "store/chunk_store_testing.h"
#include "store/peer_ledger.h"

namespace cistern::store {
namespace {

// Expiry by the thread that does it, over a wall clock that the test moves.
class ExpiryTest : public ChunkStoreTestBase {
 protected:
  ExpiryTest() : clock_(kTestStart) {}
  void SetUp() override {
    Open();
    keeper_ = std::make_unique<RoomKeeper>(*store_, clock_, RoomKeeper::Options());
    maintenance_ =
        std::make_unique<Maintenance>(*store_, *keeper_, peers_, clock_, [this] { ++pokes_; });
    maintenance_->Start();
  }
  void TearDown() override { maintenance_->Stop(); }

  void PutFor(uint64_t n, absl::Duration life) {
    PutOptions options;
    options.expiry_unix_ms = static_cast<uint64_t>(absl::ToUnixMillis(clock_.Wall() + life));
    now_ = clock_.Wall();
    ASSERT_NE(Put(n, 4096, options), Version(0));
  }
  // A task that was queued now has run, and so has the expiry behind it.
  void Turn() {
    for (int i = 0; i < 2; ++i) {
      std::atomic<bool> ran{false};
      ASSERT_TRUE(maintenance_->Run([&ran] { ran = true; }));
      ASSERT_TRUE(Eventually([&] { return ran.load(); }));
    }
  }

  FakeClock clock_;
  std::atomic<int> pokes_{0};
  std::unique_ptr<RoomKeeper> keeper_;
  PeerLedger peers_{PeerLedger::Options()};
  std::unique_ptr<Maintenance> maintenance_;
};

TEST_F(ExpiryTest, FreesWhatIsDueThoughNobodyTouchesIt) {
  PutFor(1, absl::Seconds(2));
  PutFor(2, absl::Hours(2));
  ASSERT_NO_FATAL_FAILURE(Turn());
  EXPECT_EQ(store_->chunk_count(), 2u);
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Eventually([&] { return store_->chunk_count() == 1; }));
  EXPECT_TRUE(Eventually([&] { return pokes_ > 0; }));  // the master is to hear of it
  wire::TierUsage usage;
  store_->Usage(clock_.Wall(), &usage);
  EXPECT_EQ(usage.used_bytes(), 4096u);
}

TEST_F(ExpiryTest, ClockSetForwardExpiresAtOnceWhatBecameDue) {
  PutFor(1, absl::Minutes(59));
  PutFor(2, absl::Minutes(61));
  clock_.JumpWall(absl::Hours(1));
  EXPECT_TRUE(Eventually([&] { return store_->chunk_count() == 1; }));
  now_ = clock_.Wall();
  EXPECT_TRUE(Has(2));
}

TEST_F(ExpiryTest, ClockSetBackOnlyDelays) {
  PutFor(1, absl::Seconds(10));
  clock_.JumpWall(-absl::Hours(1));
  clock_.Advance(absl::Seconds(20));
  ASSERT_NO_FATAL_FAILURE(Turn());
  now_ = clock_.Wall();
  EXPECT_TRUE(HasBytes(1, 4096));
  // What is put by the new time lives by it, and goes first.
  PutFor(2, absl::Seconds(5));
  clock_.Advance(absl::Seconds(5));
  EXPECT_TRUE(Eventually([&] { return store_->chunk_count() == 1; }));
  clock_.JumpWall(absl::Hours(1));
  EXPECT_TRUE(Eventually([&] { return store_->chunk_count() == 0; }));
  EXPECT_TRUE(store_->AllFree());
}

}  // namespace
}  // namespace cistern::store
