// Stores that are killed, come back, and come back without what they had.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/store/restart_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr int kCannotStart = 3;

class StoreRestartTest : public RestartFixture {
 protected:
  void StartOneStore(std::vector<std::string> master_set = {}) {
    pool::LocalPoolOptions options;
    options.stores = 1;
    options.pool_bytes = uint64_t{192} << 20;
    options.master_set = std::move(master_set);
    StartPoolWith(options);
  }
  void PutAll(int count, uint64_t bytes) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(Put("k" + std::to_string(i), i, bytes, Visible()), ChunkCode::kOk) << message_;
    }
  }
  // Every one is there and has its own bytes.
  void ExpectAll(int count, uint64_t bytes) {
    ASSERT_TRUE(Eventually([&] { return Present(0, count) == static_cast<size_t>(count); }))
        << Present(0, count) << " of " << count << " are back";
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(Get("k" + std::to_string(i), bytes), ChunkCode::kOk) << i << " " << message_;
      ASSERT_TRUE(Brought(i, bytes)) << i;
    }
  }
};

TEST_F(StoreRestartTest, EveryAcknowledgedChunkIsBackAfterAKillUnderPutLoad) {
  StartOneStore();
  constexpr uint64_t kBytes = 150'001;  // neither a page nor a power of two
  // Killed three times, each time while a put is under way; what was acknowledged stays.
  int next = 0;
  std::vector<int> acknowledged;
  for (int round = 1; round <= 3; ++round) {
    std::atomic<int> done{static_cast<int>(acknowledged.size())};
    std::atomic<bool> killed{false};
    std::thread killer([&, wanted = 60 * round, victim = PidOf(kStore)] {
      while (done < wanted) std::this_thread::yield();
      kill(victim, SIGKILL);
      killed = true;
    });
    // One may be refused while the client has not found the store again; it is not acknowledged.
    const MonoTime until = Clock::Real().Mono() + absl::Seconds(60);
    while (!killed && Clock::Real().Mono() < until) {
      PutOptions options;
      options.deadline = absl::Seconds(2);
      const int n = next++;
      if (Put("k" + std::to_string(n), n, kBytes, options) != ChunkCode::kOk) continue;
      acknowledged.push_back(n);
      ++done;
    }
    if (!killed) done = 60 * round;  // lets the killer end
    killer.join();
    ASSERT_GE(acknowledged.size(), 60u * static_cast<size_t>(round)) << message_;
    Kill(kStore);  // reaps it
    StartAgain(kStore);
    // All of them, and each byte as it was.
    ASSERT_TRUE(Eventually([&] {
      size_t there = 0;
      for (const int n : acknowledged) there += Present(n, 1);
      return there == acknowledged.size();
    })) << LogOf(kStore);
    for (const int n : acknowledged) {
      ASSERT_EQ(Get("k" + std::to_string(n), kBytes), ChunkCode::kOk) << n << " " << message_;
      ASSERT_TRUE(Brought(n, kBytes)) << n;
    }
    EXPECT_EQ(client_->stats().verify_failures, 0u);
  }
}

TEST_F(StoreRestartTest, EmptiedTmpfsIsACleanStartAndVersionsGoOn) {
  StartOneStore();
  PutAll(20, 100'000);
  const uint64_t version = VersionOf("k19");
  ASSERT_GT(version, 0u);
  Kill(kStore);
  // As a reboot: the folder on tmpfs is gone, the data folder on disk is not.
  std::filesystem::remove_all(SegmentDir());
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  // The master's old entries are swept: nothing is offered, nothing is counted.
  EXPECT_TRUE(Eventually([&] { return Stats().pool().chunk_count() == 0; }));
  EXPECT_EQ(Present(0, 20), 0u);
  EXPECT_EQ(Get("k3", 100'000), ChunkCode::kNotFound);
  PutAll(20, 100'000);
  ExpectAll(20, 100'000);
  EXPECT_GT(VersionOf("k0"), version) << "versions never run backwards";
}

TEST_F(StoreRestartTest, LookupsForgetAKilledStoreAndFindItAgain) {
  StartOneStore();
  PutAll(10, 50'000);
  Kill(kStore);
  // The closed connection is the sign; no time-out has to pass (dead_after is 10 s).
  const MonoTime killed = Clock::Real().Mono();
  ASSERT_TRUE(Eventually([&] { return Present(0, 10) == 0; }));
  RecordProperty("absent_after_ms",
                 static_cast<int>(absl::ToInt64Milliseconds(Clock::Real().Mono() - killed)));
  EXPECT_EQ(StateOf(0), "dead");
  StartAgain(kStore);
  const MonoTime started = Clock::Real().Mono();
  ASSERT_TRUE(Eventually([&] { return Present(0, 10) == 10; })) << LogOf(kStore);
  RecordProperty("back_after_ms",
                 static_cast<int>(absl::ToInt64Milliseconds(Clock::Real().Mono() - started)));
  // The same client, which was told nothing: another port, another process.
  ExpectAll(10, 50'000);
  EXPECT_EQ(Put("new", 77, 50'000), ChunkCode::kOk) << message_;
}

TEST_F(StoreRestartTest, StoppedStoreIsSkippedAndBackWhenItGoesOn) {
  StartOneStore({"heartbeat=50ms", "suspect_after=300ms", "dead_after=600ms"});
  PutAll(10, 50'000);
  kill(PidOf(kStore), SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return Present(0, 10) == 0; }));
  EXPECT_EQ(StateOf(0), "dead");
  kill(PidOf(kStore), SIGCONT);
  EXPECT_TRUE(Eventually([&] { return Present(0, 10) == 10; }));
  ExpectAll(10, 50'000);
}

TEST_F(StoreRestartTest, StoreWithoutItsMasterServesGets) {
  StartOneStore();
  PutAll(10, 50'000);
  Kill(kMaster);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Get("k" + std::to_string(i), 50'000), ChunkCode::kOk) << i << " " << message_;
    EXPECT_TRUE(Brought(i, 50'000));
  }
}

// What is found in the place of a segment: each is refused with what to do, nothing is touched, and
// no wrong byte is ever served.
class StrangeSegmentTest : public StoreRestartTest {
 protected:
  void SetUp() override {
    StartOneStore();
    PutAll(5, 200'000);
    Kill(kStore);
    saved_ = SegmentDir() + "/saved";
    std::filesystem::copy_file(SegmentFile(), saved_);
  }
  void ExpectRefused(const std::string& says) {
    EXPECT_EQ(StartInVain(kStore), kCannotStart) << log_;
    EXPECT_THAT(log_, HasSubstr(says));
    EXPECT_THAT(log_, HasSubstr(SegmentFile())) << "names the file";
    // With the file put back all is well: nothing else was changed.
    std::filesystem::remove(SegmentFile());
    std::filesystem::copy_file(saved_, SegmentFile());
    StartAgain(kStore);
    ExpectAll(5, 200'000);
  }
  void Overwrite(uint64_t offset, const std::string& bytes) {
    const int fd = open(SegmentFile().c_str(), O_WRONLY);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
    close(fd);
  }

  std::string saved_;
};

TEST_F(StrangeSegmentTest, TruncatedFile) {
  ASSERT_EQ(truncate(SegmentFile().c_str(), 64 << 20), 0);
  ExpectRefused("set the size or remove the file");
}

TEST_F(StrangeSegmentTest, GarbageOfTheRightSize) {
  Overwrite(0, PatternBytes(5, 1 << 20));
  ExpectRefused("not a segment of Cistern");
}

TEST_F(StrangeSegmentTest, DamagedSuperblock) {
  Overwrite(80, "XXXX");  // the number of headers
  ExpectRefused("damaged (CRC); remove the file to start empty");
}

TEST_F(StrangeSegmentTest, NewerFormat) {
  Overwrite(8, std::string("\x09\0\0\0", 4));
  ExpectRefused("segment format 9");
}

TEST_F(StrangeSegmentTest, HolesWhereBytesWere) {
  // Truncated and grown again: the right size, zeros behind, no memory behind the pages. Neither
  // SIGBUS nor wrong bytes: what the headers promise is checked before it is served.
  ASSERT_EQ(truncate(SegmentFile().c_str(), 1 << 20), 0);
  ASSERT_EQ(truncate(SegmentFile().c_str(), 192 << 20), 0);
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  for (int i = 0; i < 5; ++i) {
    const ChunkCode code = Get("k" + std::to_string(i), 200'000);
    EXPECT_TRUE(code != ChunkCode::kOk || Brought(i, 200'000)) << i;
  }
  // A reader's complaint has them dropped; the keys can be put again.
  ASSERT_TRUE(Eventually([&] { return Put("k0", 0, 200'000) == ChunkCode::kOk; })) << message_;
  EXPECT_EQ(Get("k0", 200'000), ChunkCode::kOk);
  EXPECT_TRUE(Brought(0, 200'000));
}

TEST_F(StrangeSegmentTest, RottenHeadersAreDroppedAndTheRestServed) {
  // The whole header table, but for its first header: 4 KiB superblock, 384 slots of 5,120 B.
  const uint64_t slots = (192 << 20) >> 19;
  const uint64_t table = (4096 + slots * 5120 + 4095) / 4096 * 4096;
  Overwrite(table + 128, PatternBytes(9, 64 * 128));
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; })) << LogOf(kStore);
  EXPECT_TRUE(Eventually([&] { return Stats().pool().chunk_count() == 1; }));
  EXPECT_EQ(Present(0, 5), 1u);
  for (int i = 0; i < 5; ++i) {
    if (Get("k" + std::to_string(i), 200'000) == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(i, 200'000));
    }
  }
}

TEST_F(StrangeSegmentTest, SecondStoreOnTheSameFoldersIsRefused) {
  StartAgain(kStore);
  ASSERT_TRUE(Eventually([&] { return StateOf(0) == "serving"; }));
  const std::string log = pool_->dir() + "/twin.log";
  ASSERT_OK_AND_ASSIGN(const auto twin,
                       pool::ChildProcess::Start({.name = "twin",
                                                  .argv = {"store/cistern-store", "--config",
                                                           pool_->dir() + "/store-0.toml"},
                                                  .log_path = log},
                                                 Clock::Real()));
  ASSERT_TRUE(twin->WaitFor(absl::Seconds(30)));
  EXPECT_EQ(twin->exit_code(), kCannotStart);
  EXPECT_THAT(twin->LogTail(), HasSubstr("in use by another store process"));
  // Another data folder does not help either: the segment is taken.
  const std::string other = pool_->dir() + "/other-data";
  ASSERT_EQ(mkdir(other.c_str(), 0700), 0);
  ASSERT_OK_AND_ASSIGN(const auto thief,
                       pool::ChildProcess::Start(
                           {.name = "thief",
                            .argv = {"store/cistern-store", "--config",
                                     pool_->dir() + "/store-0.toml", "--set", "data_dir=" + other},
                            .log_path = log},
                           Clock::Real()));
  ASSERT_TRUE(thief->WaitFor(absl::Seconds(30)));
  EXPECT_EQ(thief->exit_code(), kCannotStart);
  EXPECT_THAT(thief->LogTail(), HasSubstr("in use by another process"));
  ExpectAll(5, 200'000);
}

}  // namespace
}  // namespace cistern
