// Masters that are killed, come back, and come back from an old copy of their folder.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/store/restart_fixture.h"

namespace cistern {
namespace {

constexpr int kChunks = 40;
constexpr uint64_t kBytes = 1'000'000;

class MasterRestartTest : public RestartFixture {
 protected:
  void SetUp() override {
    pool::LocalPoolOptions options;
    options.stores = 2;
    options.pool_bytes = uint64_t{256} << 20;
    StartPoolWith(options);
    for (int i = 0; i < kChunks; ++i) {
      PutOptions put = Visible();
      put.affinity = static_cast<uint64_t>(i) << 56;  // in both stores
      ASSERT_EQ(Put("k" + std::to_string(i), i, kBytes, put), ChunkCode::kOk) << message_;
    }
  }
  std::string MasterDir() const { return pool_->dir() + "/master"; }
  uint64_t Epoch() const {
    const auto admin = Admin();
    EXPECT_OK(admin);
    const auto version = (*admin)->Version();
    return version.ok() ? version->epoch() : 0;
  }
  bool EveryChunkIsBack() {
    return Eventually([&] { return Present(0, kChunks) == kChunks; });
  }
  bool BothServe() {
    return Eventually([&] {
      const auto admin = Admin();
      const auto stats = (*admin)->Stats();
      return stats.ok() && stats->stores_size() == 2 &&
             std::all_of(stats->stores().begin(), stats->stores().end(),
                         [](const auto& s) { return s.state() == "serving"; });
    });
  }
};

TEST_F(MasterRestartTest, EveryChunkIsBackFromItsStore) {
  ASSERT_EQ(Epoch(), 1u);
  for (int round = 1; round <= 3; ++round) {
    Kill(kMaster);
    EXPECT_EQ(Present(0, kChunks), 0u) << "no master: nothing is found, and nothing hangs";
    const MonoTime started = Clock::Real().Mono();
    StartAgain(kMaster);
    ASSERT_TRUE(EveryChunkIsBack()) << LogOf(kMaster);
    RecordProperty("rebuilt_ms_" + std::to_string(round),
                   static_cast<int>(absl::ToInt64Milliseconds(Clock::Real().Mono() - started)));
    EXPECT_EQ(Epoch(), 1u + static_cast<uint64_t>(round));
    for (int i = 0; i < kChunks; ++i) {
      ASSERT_EQ(Get("k" + std::to_string(i), kBytes), ChunkCode::kOk) << i << " " << message_;
      ASSERT_TRUE(Brought(i, kBytes)) << i;
    }
    EXPECT_EQ(Put("new" + std::to_string(round), 99, kBytes), ChunkCode::kOk) << message_;
  }
  EXPECT_EQ(Stats().pool().chunk_count(), kChunks + 3u);
}

// Someone restores yesterday's copy of the folder: its epoch is behind what the stores have seen.
TEST_F(MasterRestartTest, OlderEpochIsOutbidDurably) {
  Kill(kMaster);
  const std::string copy = pool_->dir() + "/master-copy";
  std::filesystem::copy(MasterDir(), copy, std::filesystem::copy_options::recursive);
  for (int round = 0; round < 3; ++round) {
    StartAgain(kMaster);
    ASSERT_TRUE(BothServe());
    if (round < 2) Kill(kMaster);
  }
  ASSERT_EQ(Epoch(), 4u);
  Kill(kMaster);
  std::filesystem::remove_all(MasterDir());
  std::filesystem::copy(copy, MasterDir(), std::filesystem::copy_options::recursive);
  // By its own folder it would be epoch 2; its stores have been in session with 4.
  StartAgain(kMaster);
  ASSERT_TRUE(BothServe()) << LogOf(kMaster);
  EXPECT_EQ(Epoch(), 5u);
  ASSERT_TRUE(EveryChunkIsBack());
  // Its commands are obeyed: what it tells to go goes.
  const auto admin = Admin();
  admin::RemoveChunksRequest remove;
  remove.set_namespace_name("test");
  remove.set_all_in_namespace(true);
  remove.set_force(true);
  const auto removed = (*admin)->RemoveChunks(remove);
  ASSERT_OK(removed);
  EXPECT_EQ(removed->removed(), static_cast<uint64_t>(kChunks));
  EXPECT_TRUE(Eventually([&] {
    const auto segments = (*admin)->Segments();
    return segments.ok() && std::all_of(segments->segments().begin(), segments->segments().end(),
                                        [](const auto& s) { return s.headers_used() == 0; });
  }));
  // It was written down: killed at once, it goes on above.
  Kill(kMaster);
  StartAgain(kMaster);
  ASSERT_TRUE(BothServe());
  EXPECT_EQ(Epoch(), 6u);
}

TEST_F(MasterRestartTest, RebuiltIndexHasWhatHappenedMeanwhile) {
  Kill(kMaster);
  // A store goes and comes while there is no master; another loses all.
  Kill(kStore);
  Kill(kStore + 1);
  std::filesystem::remove_all(SegmentDir(1));
  StartAgain(kStore);
  StartAgain(kStore + 1);
  StartAgain(kMaster);
  ASSERT_TRUE(BothServe()) << LogOf(kMaster);
  size_t held = 0;
  ASSERT_TRUE(Eventually([&] {
    held = Present(0, kChunks);
    return held > 0 && held == Stats().pool().chunk_count();
  }));
  EXPECT_LT(held, static_cast<size_t>(kChunks));
  for (int i = 0; i < kChunks; ++i) {
    const ChunkCode code = Get("k" + std::to_string(i), kBytes);
    if (code == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(i, kBytes));
      --held;
    } else {
      EXPECT_EQ(code, ChunkCode::kNotFound) << i << " " << message_;
    }
  }
  EXPECT_EQ(held, 0u);
}

}  // namespace
}  // namespace cistern
