#include "client/part_progress.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

constexpr uint32_t kAll = PartProgress::kAll;

class PartProgressTest : public ::testing::Test {
 protected:
  int changes_ = 0;
  PartProgress three_{3, [this] { ++changes_; }};
};

TEST_F(PartProgressTest, TheSlowestChunkCounts) {
  EXPECT_EQ(three_.parts_done(), 0u);
  three_.Advance(0, 1);
  three_.Advance(1, 5);
  EXPECT_EQ(three_.parts_done(), 0u);
  EXPECT_EQ(changes_, 0);
  three_.Advance(2, 1);
  EXPECT_EQ(three_.parts_done(), 1u);
  three_.Advance(0, 3);
  EXPECT_EQ(three_.parts_done(), 1u);
  three_.Advance(2, 4);
  EXPECT_EQ(three_.parts_done(), 3u);  // 3, 5, 4
  EXPECT_EQ(changes_, 2);
}

TEST_F(PartProgressTest, CompleteChunksHoldNobodyUp) {
  three_.Advance(0, kAll);
  three_.Advance(1, 2);
  three_.Advance(2, 2);
  EXPECT_EQ(three_.parts_done(), 2u);
  three_.Advance(1, kAll);
  three_.Advance(2, kAll);
  EXPECT_EQ(three_.parts_done(), kAll);
  EXPECT_TRUE(three_.missed().empty());
}

TEST_F(PartProgressTest, FailedChunksHoldNobodyUpAndAreListed) {
  three_.Advance(0, 2);
  three_.Advance(1, 3);
  EXPECT_EQ(three_.parts_done(), 0u);
  three_.Fail(2, ChunkCode::kNotFound);
  EXPECT_EQ(three_.parts_done(), 2u);
  EXPECT_TRUE(three_.Lacks(0));
  three_.Advance(0, 3);
  three_.Fail(1, ChunkCode::kDataLoss);
  EXPECT_EQ(three_.parts_done(), 3u);
  ASSERT_EQ(three_.missed().size(), 2u);
  EXPECT_EQ(three_.missed()[0].item, 2u);
  EXPECT_EQ(three_.missed()[0].code, ChunkCode::kNotFound);
  EXPECT_EQ(three_.missed()[0].parts_done, 0u);
  EXPECT_EQ(three_.missed()[1].item, 1u);
  EXPECT_EQ(three_.missed()[1].parts_done, 3u);
}

TEST_F(PartProgressTest, APartIsLackedOnlyByThoseThatFailedWithoutIt) {
  three_.Advance(1, 3);
  three_.Fail(1, ChunkCode::kUnavailable);
  EXPECT_FALSE(three_.Lacks(2));
  EXPECT_TRUE(three_.Lacks(3));
}

TEST_F(PartProgressTest, NothingGoesBack) {
  three_.Advance(0, 4);
  three_.Advance(0, 2);
  three_.Advance(1, 4);
  three_.Advance(2, 4);
  EXPECT_EQ(three_.parts_done(), 4u);
  three_.Fail(0, ChunkCode::kNotFound);
  three_.Advance(0, 9);
  three_.Fail(0, ChunkCode::kInternal);
  EXPECT_EQ(three_.parts_done(), 4u);
  ASSERT_EQ(three_.missed().size(), 1u);
  EXPECT_EQ(three_.missed()[0].code, ChunkCode::kNotFound);
  EXPECT_EQ(three_.missed()[0].parts_done, 4u);
}

TEST_F(PartProgressTest, CompleteChunkThatIsTakenBackIsListed) {
  three_.Advance(0, kAll);
  three_.Fail(0, ChunkCode::kDataLoss);
  ASSERT_EQ(three_.missed().size(), 1u);
  EXPECT_EQ(three_.missed()[0].parts_done, kAll);
  EXPECT_FALSE(three_.Lacks(7));  // it had arrived
}

TEST_F(PartProgressTest, EventFdTellsOfGrowthAndMisses) {
  const int fd = three_.EventFd();
  pollfd p = {.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  for (const uint32_t chunk : {0, 1, 2}) three_.Advance(chunk, 1);
  EXPECT_EQ(poll(&p, 1, 0), 1);
  uint64_t count;
  ASSERT_EQ(read(fd, &count, sizeof(count)), ssize_t{sizeof(count)});
  EXPECT_EQ(poll(&p, 1, 0), 0);
  three_.Fail(1, ChunkCode::kNotFound);
  EXPECT_EQ(poll(&p, 1, 0), 1);
}

TEST(PartProgressOnceTest, EventFdMadeLateIsReadableAtOnce) {
  PartProgress progress(1, [] {});
  progress.Advance(0, kAll);
  pollfd p = {.fd = progress.EventFd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&p, 1, 0), 1);
}

TEST(PartProgressOnceTest, NoChunksAreAllThere) {
  PartProgress progress(0, [] {});
  EXPECT_EQ(progress.parts_done(), kAll);
}

// Against the definition, for random calls.
TEST(PartProgressOnceTest, AgreesWithTheDefinition) {
  uint64_t state = 3;
  const auto draw = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state >> 33) % below);
  };
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + draw(6);
    PartProgress progress(n, [] {});
    std::vector<uint32_t> parts(n, 0);
    std::vector<bool> failed(n, false);
    for (int i = 0; i < 60; ++i) {
      const uint32_t chunk = draw(n);
      const uint32_t to = draw(20) == 0 ? kAll : draw(12);
      if (draw(15) == 0) {
        progress.Fail(chunk, ChunkCode::kNotFound);
        failed[chunk] = true;
      } else {
        progress.Advance(chunk, to);
        if (!failed[chunk]) parts[chunk] = std::max(parts[chunk], to);
      }
      uint32_t least = kAll;
      for (size_t c = 0; c < n; ++c) {
        if (!failed[c]) least = std::min(least, parts[c]);
      }
      ASSERT_EQ(progress.parts_done(), least) << round << " " << i;
    }
  }
}

TEST(PartProgressOnceTest, ThreadsAdvanceTogether) {
  constexpr uint32_t kParts = 2'000;
  std::atomic<int> changes = 0;
  PartProgress progress(4, [&] { ++changes; });
  std::vector<std::thread> threads;
  for (uint32_t chunk = 0; chunk < 4; ++chunk) {
    threads.emplace_back([&, chunk] {
      for (uint32_t p = 1; p <= kParts; ++p) progress.Advance(chunk, p);
    });
  }
  uint32_t seen = 0;
  while (seen < kParts) {
    const uint32_t now = progress.parts_done();
    ASSERT_GE(now, seen);
    seen = now;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(progress.parts_done(), kParts);
  EXPECT_GE(changes, 1);
}

}  // namespace
}  // namespace cistern
