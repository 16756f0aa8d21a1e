// Segments that come and go under load, through cisternctl's way to the store.
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/store/restart_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class SegmentMountTest : public RestartFixture {
 protected:
  void SetUp() override {
    pool::LocalPoolOptions options;
    options.stores = 1;
    options.pool_bytes = 64 * kMiB;
    StartPoolWith(options);
    ASSERT_OK_AND_ASSIGN(admin_, Admin());
  }
  absl::StatusOr<admin::MountSegmentReply> Mount(const std::string& name, uint64_t bytes,
                                                 const std::string& kind = "file") {
    admin::MountSegmentRequest request;
    request.set_store("store-0");
    request.set_name(name);
    request.set_bytes(bytes);
    request.set_kind(kind);
    return admin_->MountSegment(request);
  }
  absl::StatusOr<admin::UnmountSegmentReply> Unmount(const std::string& segment) {
    admin::UnmountSegmentRequest request;
    request.set_store("store-0");
    request.set_segment(segment);
    return admin_->UnmountSegment(request);
  }
  uint64_t Capacity() const {
    const admin::StatsReply stats = Stats();
    return stats.pool().tiers_size() == 0 ? 0 : stats.pool().tiers(0).capacity_bytes();
  }
  // Resident bytes of the store's process.
  uint64_t ResidentBytes() const {
    std::ifstream file("/proc/" + std::to_string(PidOf(kStore)) + "/statm");
    uint64_t size = 0;
    uint64_t resident = 0;
    file >> size >> resident;
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  // Bytes that the segments' files take from the file system.
  uint64_t BackedBytes() const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(SegmentDir())) {
      struct stat st;
      if (stat(entry.path().c_str(), &st) == 0) {
        bytes += static_cast<uint64_t>(st.st_blocks) * 512;
      }
    }
    return bytes;
  }

  std::unique_ptr<ctl::AdminClient> admin_;
};

TEST_F(SegmentMountTest, MountedSegmentIsFilledSurvivesAKillAndGivesItsMemoryBack) {
  ASSERT_OK(Mount("extra", 128 * kMiB));
  EXPECT_GT(Capacity(), 180 * kMiB) << "the master knows when the call is answered";
  constexpr uint64_t kBytes = 1'000'000;
  constexpr int kChunks = 150;  // more than the first segment could ever hold
  for (int i = 0; i < kChunks; ++i) {
    ASSERT_EQ(Put("k" + std::to_string(i), i, kBytes, Visible()), ChunkCode::kOk) << message_;
  }
  EXPECT_EQ(Present(0, kChunks), static_cast<size_t>(kChunks));

  Kill(kStore);
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return Present(0, kChunks) == kChunks; })) << LogOf(kStore);
  for (int i = 0; i < kChunks; ++i) {
    ASSERT_EQ(Get("k" + std::to_string(i), kBytes), ChunkCode::kOk) << i << " " << message_;
    ASSERT_TRUE(Brought(i, kBytes)) << i;
  }

  const uint64_t resident = ResidentBytes();
  ASSERT_GT(BackedBytes(), 190 * kMiB);
  ASSERT_OK_AND_ASSIGN(const admin::UnmountSegmentReply gone, Unmount("extra"));
  EXPECT_FALSE(gone.pending());
  EXPECT_GT(gone.evicted_chunks(), 80u);
  EXPECT_LT(BackedBytes(), 70 * kMiB);
  EXPECT_LT(ResidentBytes() + 80 * kMiB, resident);
  EXPECT_LT(Capacity(), 64 * kMiB);
  // What was evicted is a miss, with its cause; the rest is served.
  size_t left = 0;
  for (int i = 0; i < kChunks; ++i) {
    const ChunkCode code = Get("k" + std::to_string(i), kBytes);
    if (code != ChunkCode::kOk) {
      EXPECT_EQ(code, ChunkCode::kNotFound) << message_;
      continue;
    }
    EXPECT_TRUE(Brought(i, kBytes));
    ++left;
  }
  EXPECT_GT(left, 0u);
  EXPECT_LE(left + gone.evicted_chunks(), static_cast<size_t>(kChunks));
  EXPECT_EQ(Stats().stores(0).removed_by_cause().at("unmounted"), gone.evicted_chunks());

  Kill(kStore);
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; }));
  ASSERT_OK_AND_ASSIGN(const admin::SegmentsReply segments, admin_->Segments());
  EXPECT_EQ(segments.segments_size(), 1);
}

TEST_F(SegmentMountTest, KillsInTheMidstAreEndedByTheNextStart) {
  Kill(kStore);
  StartAgain(kStore, {"--enable-faults", "--fault", "store.mount.formatted:kill"});
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  EXPECT_THAT(Mount("extra", 32 * kMiB),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("ended before it answered")));
  Kill(kStore);
  StartAgain(kStore, {"--enable-faults", "--fault", "store.unmount.recorded:kill"});
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  EXPECT_NE(access((SegmentDir() + "/extra").c_str(), F_OK), 0);
  ASSERT_OK(Mount("extra", 32 * kMiB));
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(Put("k" + std::to_string(i), i, 500'000, Visible()), ChunkCode::kOk);
  }
  EXPECT_THAT(Unmount("extra"), StatusIs(absl::StatusCode::kAborted));
  Kill(kStore);
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  EXPECT_NE(access((SegmentDir() + "/extra").c_str(), F_OK), 0);
  size_t held = 0;
  for (int i = 0; i < 40; ++i) {
    if (Get("k" + std::to_string(i), 500'000) != ChunkCode::kOk) continue;
    EXPECT_TRUE(Brought(i, 500'000));
    ++held;
  }
  EXPECT_TRUE(Eventually([&] { return Stats().pool().chunk_count() == held; }));
}

TEST_F(SegmentMountTest, MemfdIsMountedAndFreshAfterARestart) {
  ASSERT_OK_AND_ASSIGN(const admin::MountSegmentReply reply, Mount("fast", 32 * kMiB, "memfd"));
  EXPECT_FALSE(reply.segment().persistent());
  Kill(kStore);
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; }));
  EXPECT_TRUE(Eventually([&] {
    const auto segments = admin_->Segments();
    return segments.ok() && segments->segments_size() == 2;
  }));
  ASSERT_OK(Unmount("fast"));
}

TEST_F(SegmentMountTest, MoreThanTheHostHasIsRefusedAndTheStoreLives) {
  struct statvfs fs;
  ASSERT_EQ(statvfs(SegmentDir().c_str(), &fs), 0);
  const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
  if (free >= (uint64_t{64} << 30)) GTEST_SKIP() << "SKIPPED: more room than a segment may have";
  const auto refused = Mount("huge", (free / kMiB + 64) * kMiB);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_EQ(Put("k0", 0, 100'000), ChunkCode::kOk);
  EXPECT_EQ(Get("k0", 100'000), ChunkCode::kOk);
}

TEST_F(SegmentMountTest, GetsGoOnWhileSegmentsComeAndGo) {
  constexpr uint64_t kBytes = 300'000;
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(Put("k" + std::to_string(i), i, kBytes, Visible()), ChunkCode::kOk);
  }
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::atomic<bool> over{false};
  absl::Status trouble;
  std::thread administrator([&] {
    while (!stop && trouble.ok()) {
      trouble = Mount("guest", 64 * kMiB).status();
      if (trouble.ok()) trouble = Unmount("guest").status();
      ++rounds;
    }
    over = true;
  });
  int good = 0;
  int missed = 0;
  for (int n = 0; (rounds < 10 || n < 300) && !over; ++n) {
    const int i = n % 60;
    const std::string key = "k" + std::to_string(i);
    const ChunkCode code = Get(key, kBytes);
    if (code == ChunkCode::kOk) {
      ++good;
      EXPECT_TRUE(Brought(i, kBytes)) << i;
      continue;
    }
    EXPECT_EQ(code, ChunkCode::kNotFound) << message_;
    ++missed;
    const ChunkCode put = Put(key, i, kBytes);
    EXPECT_TRUE(put == ChunkCode::kOk || put == ChunkCode::kPresent ||
                put == ChunkCode::kInProgress)
        << ChunkCodeName(put) << " " << message_;
  }
  stop = true;
  administrator.join();
  EXPECT_OK(trouble);
  EXPECT_GT(good, 100);
  RecordProperty("missed", missed);
  EXPECT_EQ(client_->stats().verify_failures, 0u);
}

}  // namespace
}  // namespace cistern
