#include "base/mapping.h"

#include <sys/mman.h>

#include <cstring>

#include "base/test_util.h"

namespace cistern {
namespace {

constexpr size_t kBytes = 1 << 20;

TEST(MappingTest, TellsRangeResidentBytesAndFlags) {
  void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(p, MAP_FAILED);
  ASSERT_EQ(madvise(p, kBytes, MADV_NOHUGEPAGE), 0);
  // An advice of its own, so that the neighbours are other mappings.
  ASSERT_EQ(madvise(p, kBytes, MADV_DONTDUMP), 0);
  std::memset(p, 1, kBytes / 2);
  ASSERT_OK_AND_ASSIGN(const MappingInfo info, ReadMapping(static_cast<char*>(p) + 5000));
  EXPECT_EQ(info.begin, reinterpret_cast<uint64_t>(p));
  EXPECT_EQ(info.end, reinterpret_cast<uint64_t>(p) + kBytes);
  EXPECT_EQ(info.resident_bytes, kBytes / 2);
  EXPECT_EQ(info.huge_bytes, 0u);
  EXPECT_TRUE(info.HasFlag("dd"));
  EXPECT_TRUE(info.HasFlag("nh"));
  EXPECT_FALSE(info.HasFlag("hg"));
  munmap(p, kBytes);
  EXPECT_THAT(ReadMapping(p), StatusIs(absl::StatusCode::kNotFound));
}

TEST(MappingTest, KnowsWhatMemoryIsAvailable) {
  EXPECT_GT(AvailableMemoryBytes(), uint64_t{1} << 20);
  EXPECT_LT(AvailableMemoryBytes(), uint64_t{1} << 50);
}

}  // namespace
}  // namespace cistern
