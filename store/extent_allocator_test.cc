#include "store/extent_allocator.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::store {
namespace {

constexpr uint64_t kPage = Extent::kAlignment;

// One bool a page: slow and plainly right.
class BitmapModel {
 public:
  explicit BitmapModel(size_t pages) : used_(pages) {}
  // Where best fit puts `pages`: in the smallest free run that holds them, the first of equals.
  std::optional<size_t> Allocate(size_t pages) {
    std::optional<size_t> best;
    size_t best_run = used_.size() + 1;
    for (const auto& [begin, run] : FreeRuns()) {
      if (run >= pages && run < best_run) {
        best = begin;
        best_run = run;
      }
    }
    if (best.has_value()) Set(*best, pages, true);
    return best;
  }
  void Free(size_t begin, size_t pages) { Set(begin, pages, false); }
  size_t free_pages() const {
    return static_cast<size_t>(std::count(used_.begin(), used_.end(), false));
  }
  size_t largest() const {
    size_t largest = 0;
    for (const auto& [begin, run] : FreeRuns()) largest = std::max(largest, run);
    return largest;
  }
  std::map<size_t, size_t> FreeRuns() const {
    std::map<size_t, size_t> runs;
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      size_t end = i;
      while (end < used_.size() && !used_[end]) ++end;
      runs[i] = end - i;
      i = end;
    }
    return runs;
  }

 private:
  void Set(size_t begin, size_t pages, bool used) {
    for (size_t i = begin; i < begin + pages; ++i) {
      ASSERT_NE(used_[i], used);
      used_[i] = used;
    }
  }
  std::vector<bool> used_;
};

TEST(ExtentAllocatorTest, CutsFromTheFrontAndRoundsUpToPages) {
  ExtentAllocator a(10 * kPage, 8 * kPage);
  EXPECT_EQ(a.Allocate(1), (Extent{10 * kPage, kPage}));
  EXPECT_EQ(a.Allocate(kPage + 1), (Extent{11 * kPage, 2 * kPage}));
  EXPECT_EQ(a.free_bytes(), 5 * kPage);
  EXPECT_EQ(a.largest_free_bytes(), 5 * kPage);
  EXPECT_FALSE(a.Allocate(5 * kPage + 1).has_value());
  EXPECT_EQ(a.Allocate(5 * kPage), (Extent{13 * kPage, 5 * kPage}));
  EXPECT_EQ(a.free_bytes(), 0u);
  EXPECT_EQ(a.largest_free_bytes(), 0u);
  EXPECT_FALSE(a.Fits(1));
}

TEST(ExtentAllocatorTest, TakesTheSmallestHoleThatFits) {
  ExtentAllocator a(0, 20 * kPage);
  std::vector<Extent> extents;
  for (const uint64_t pages : {5, 1, 3, 1, 2, 1}) extents.push_back(*a.Allocate(pages * kPage));
  // Holes of 5, 3 and 2 pages, and 7 at the end.
  a.Free(extents[0]);
  a.Free(extents[2]);
  a.Free(extents[4]);
  EXPECT_EQ(a.Allocate(2 * kPage)->offset, 10 * kPage);
  EXPECT_EQ(a.Allocate(3 * kPage)->offset, 6 * kPage);
  EXPECT_EQ(a.Allocate(4 * kPage)->offset, 0u);
  EXPECT_EQ(a.Allocate(6 * kPage)->offset, 13 * kPage);
}

TEST(ExtentAllocatorTest, JoinsNeighboursOnBothSides) {
  ExtentAllocator a(0, 3 * kPage);
  const Extent left = *a.Allocate(kPage);
  const Extent middle = *a.Allocate(kPage);
  const Extent right = *a.Allocate(kPage);
  a.Free(left);
  a.Free(right);
  EXPECT_EQ(a.free_extent_count(), 2u);
  EXPECT_EQ(a.largest_free_bytes(), kPage);
  a.Free(middle);
  EXPECT_EQ(a.free_extent_count(), 1u);
  EXPECT_EQ(a.largest_free_bytes(), 3 * kPage);
}

TEST(ExtentAllocatorTest, RebuildTakesUsedExtentsInAnyOrder) {
  ExtentAllocator a(100 * kPage, 10 * kPage);
  ASSERT_TRUE(
      a.Rebuild({{107 * kPage, kPage}, {100 * kPage, 2 * kPage}, {102 * kPage, kPage}}).ok());
  EXPECT_EQ(a.free_bytes(), 6 * kPage);
  EXPECT_EQ(a.largest_free_bytes(), 4 * kPage);  // 103 to 106
  EXPECT_EQ(a.free_extent_count(), 2u);
  ASSERT_TRUE(a.Rebuild({}).ok());
  EXPECT_EQ(a.free_bytes(), 10 * kPage);
}

TEST(ExtentAllocatorTest, RebuildRefusesOverlapsAndStrangers) {
  ExtentAllocator a(100 * kPage, 10 * kPage);
  const Extent held = *a.Allocate(kPage);
  const std::vector<std::vector<Extent>> bad = {
      {{100 * kPage, 2 * kPage}, {101 * kPage, kPage}},  // overlap
      {{105 * kPage, kPage}, {105 * kPage, kPage}},      // the same twice
      {{99 * kPage, kPage}},                             // before the range
      {{109 * kPage, 2 * kPage}},                        // beyond it
      {{110 * kPage, kPage}},                            // behind it
      {{100 * kPage, ~uint64_t{0} - kPage + 1}},         // wraps round
      {{100 * kPage + 1, kPage}},                        // unaligned
      {{100 * kPage, kPage / 2}},
      {{100 * kPage, 0}},
  };
  for (const auto& used : bad) {
    EXPECT_EQ(a.Rebuild(used).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(a.free_bytes(), 9 * kPage);  // nothing changed
  }
  a.Free(held);
  EXPECT_EQ(a.free_bytes(), 10 * kPage);
}

TEST(ExtentAllocatorDeathTest, FreeingWhatIsFreeIsABug) {
  ExtentAllocator a(0, 10 * kPage);
  const Extent e = *a.Allocate(2 * kPage);
  a.Free(e);
  EXPECT_DEATH(a.Free(e), "check failed");
  EXPECT_DEATH(a.Free({20 * kPage, kPage}), "check failed");
}

TEST(ExtentAllocatorTest, AgreesWithABitmapOverRandomOperations) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    constexpr size_t kPages = 300;
    ExtentAllocator allocator(7 * kPage, kPages * kPage);
    BitmapModel model(kPages);
    std::vector<Extent> held;
    for (int step = 0; step < 3000; ++step) {
      if (held.empty() || random() % 100 < 55) {
        const size_t pages = 1 + random() % (random() % 10 == 0 ? 60 : 8);
        const auto extent = allocator.Allocate(pages * kPage - random() % kPage);
        const auto expected = model.Allocate(pages);
        ASSERT_EQ(extent.has_value(), expected.has_value());
        if (extent.has_value()) {
          ASSERT_EQ(extent->offset, (*expected + 7) * kPage);
          ASSERT_EQ(extent->bytes, pages * kPage);
          held.push_back(*extent);
        }
      } else {
        std::swap(held[random() % held.size()], held.back());
        allocator.Free(held.back());
        model.Free(held.back().offset / kPage - 7, held.back().bytes / kPage);
        held.pop_back();
      }
      ASSERT_EQ(allocator.free_bytes(), model.free_pages() * kPage);
      ASSERT_EQ(allocator.largest_free_bytes(), model.largest() * kPage);
      ASSERT_EQ(allocator.free_extent_count(), model.FreeRuns().size());
      if (step % 500 == 499) {
        ASSERT_TRUE(allocator.Rebuild(held).ok());
        ASSERT_EQ(allocator.free_extent_count(), model.FreeRuns().size());
      }
    }
  }
}

}  // namespace
}  // namespace cistern::store
