#include "base/heap_trim.h"

#include <string>
#include <vector>

#include "base/build_info.h"
#include "base/test_util.h"

namespace cistern {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class HeapTrimmerTest : public ::testing::Test {
 protected:
  HeapTrimmerTest()
      : trimmer_({.step_bytes = 32 * kMiB,
                  .every = absl::Seconds(1),
                  .resident_bytes = [this] { return bytes_; },
                  .trim =
                      [this] {
                        ++trims_;
                        bytes_ -= given_back_;
                      }}) {}
  // A second later.
  bool Look() { return trimmer_.Look(now_ = now_ + absl::Seconds(1)); }

  uint64_t bytes_ = 100 * kMiB;
  uint64_t given_back_ = 0;
  int trims_ = 0;
  MonoTime now_;
  HeapTrimmer trimmer_;
};

TEST_F(HeapTrimmerTest, TrimsAfterABurstOnceItIsOver) {
  EXPECT_FALSE(Look());
  bytes_ = 131 * kMiB;
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Look()) << "not enough";
  bytes_ = 140 * kMiB;
  EXPECT_FALSE(Look()) << "it grows";
  bytes_ = 150 * kMiB;
  EXPECT_FALSE(Look());
  given_back_ = 45 * kMiB;
  EXPECT_TRUE(Look());
  EXPECT_EQ(trims_, 1);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Look()) << "105 MiB are what it needs";
  bytes_ = 136 * kMiB;
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Look());
  bytes_ = 137 * kMiB;
  EXPECT_FALSE(Look());
  EXPECT_TRUE(Look());
}

TEST_F(HeapTrimmerTest, WhatCannotBeGivenBackIsNotTriedAgain) {
  bytes_ = 200 * kMiB;
  EXPECT_FALSE(Look());
  EXPECT_TRUE(Look());
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Look());
}

TEST_F(HeapTrimmerTest, LooksOnceInAWhile) {
  EXPECT_FALSE(Look());
  bytes_ = 200 * kMiB;
  EXPECT_FALSE(trimmer_.Look(now_ + absl::Milliseconds(999)));
  EXPECT_FALSE(Look());
  EXPECT_FALSE(trimmer_.Look(now_ + absl::Milliseconds(999)));
  EXPECT_TRUE(trimmer_.Look(now_ + absl::Milliseconds(1'000)));
}

TEST(OwnResidentBytesTest, FreedBlocksBehindOneInUseAreGivenBack) {
  const absl::string_view mode = BuildMode();
  if (mode == "asan" || mode == "tsan")
    GTEST_SKIP() << "SKIPPED: the sanitizer's allocator, not glibc's";
  HeapTrimmer trimmer{HeapTrimmer::Options()};
  const uint64_t before = OwnResidentBytes();
  std::vector<std::string> blocks(4'000, std::string(16'384, 'x'));
  EXPECT_GT(OwnResidentBytes(), before + 60 * kMiB);
  // The last block stays, and keeps the heap from shrinking by itself.
  for (size_t i = 0; i + 1 < blocks.size(); ++i) std::string().swap(blocks[i]);
  EXPECT_GT(OwnResidentBytes(), before + 60 * kMiB);
  MonoTime now;
  bool trimmed = false;
  for (int i = 0; i < 5 && !trimmed; ++i) trimmed = trimmer.Look(now = now + absl::Seconds(1));
  EXPECT_TRUE(trimmed);
  EXPECT_LT(OwnResidentBytes(), before + 16 * kMiB);
}

}  // namespace
}  // namespace cistern
