// Huge pages and core dumps, as far as the host's kernel and settings allow.
#include "store/segment_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "base/mapping.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/segment.h"

namespace cistern::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr uint64_t kBytes = 16 << 20;

// A folder on tmpfs, or none where the host has no /dev/shm.
class ShmDir {
 public:
  ShmDir() {
    if (mkdtemp(path_) == nullptr) path_[0] = '\0';
  }
  ~ShmDir() {
    unlink((std::string(path_) + "/dram-0").c_str());
    rmdir(path_);
  }
  bool exists() const { return path_[0] != '\0'; }
  std::string operator/(const std::string& name) const { return path_ + ("/" + name); }

 private:
  char path_[32] = "/dev/shm/segtest-XXXXXX";
};

SegmentOptions Options(const std::string& path, HugePages huge_pages,
                       SegmentKind kind = SegmentKind::kFile) {
  SegmentOptions options;
  options.kind = kind;
  options.path = path;
  options.bytes = kBytes;
  options.pool_id.bytes.fill(7);
  options.huge_pages = huge_pages;
  return options;
}

// Whether this kernel collapses pages of tmpfs (Linux 6.1, and not denied).
bool HostGivesHugePages() {
  const ShmDir dir;
  if (!dir.exists()) return false;
  const auto segment = Segment::Open(Options(dir / "dram-0", HugePages::kTry), kNow);
  return segment.ok() && (*segment)->huge_bytes() == kBytes;
}

TEST(SegmentMemoryTest, SegmentsAreLeftOutOfCoreDumps) {
  TempDir dir;
  for (const SegmentKind kind : {SegmentKind::kFile, SegmentKind::kMemfd}) {
    ASSERT_OK_AND_ASSIGN(const auto segment,
                         Segment::Open(Options(dir / "dram-0", HugePages::kNever, kind), kNow));
    // Superblock, header table and the last page: one mapping, all of it marked.
    ASSERT_OK_AND_ASSIGN(const MappingInfo mapping, ReadMapping(segment->base()));
    EXPECT_TRUE(mapping.HasFlag("dd"));
    EXPECT_EQ(mapping.begin, reinterpret_cast<uint64_t>(segment->base()));
    EXPECT_EQ(mapping.end - mapping.begin, kBytes);
    EXPECT_EQ(mapping.begin % kHugePageBytes, 0u);
  }
}

TEST(SegmentMemoryTest, MappingLeavesNoAddressSpaceBehind) {
  TempDir dir;
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
  };
  ASSERT_OK(Segment::Open(Options(dir / "dram-0", HugePages::kNever), kNow));
  const int before = mappings();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(Segment::Open(Options(dir / "dram-0", HugePages::kNever), kNow));
  }
  EXPECT_LE(mappings(), before + 5);
}

TEST(SegmentMemoryTest, TryTakesWhatTmpfsGives) {
  if (!HostGivesHugePages()) GTEST_SKIP() << "SKIPPED: this host gives tmpfs no huge pages";
  const ShmDir dir;
  uint64_t first_id = 0;
  {
    ASSERT_OK_AND_ASSIGN(const auto segment,
                         Segment::Open(Options(dir / "dram-0", HugePages::kTry), kNow));
    EXPECT_GT(segment->huge_bytes(), 0u);
    if (segment->huge_bytes() < kBytes) {
      GTEST_SKIP() << "SKIPPED: this host's free memory is in pieces: " << segment->huge_bytes()
                   << " of " << kBytes << " bytes lie in huge pages";
    }
    std::memset(segment->At(segment->layout().payload_offset), 0x5A, 1 << 20);
    std::memcpy(&first_id, segment->id().bytes.data(), sizeof(first_id));
  }
  // Attached again: the bytes are the same, and in huge pages again.
  ASSERT_OK_AND_ASSIGN(const auto segment,
                       Segment::Open(Options(dir / "dram-0", HugePages::kRequire), kNow));
  EXPECT_TRUE(segment->attached());
  EXPECT_EQ(segment->huge_bytes(), kBytes);
  EXPECT_EQ(std::memcmp(segment->id().bytes.data(), &first_id, sizeof(first_id)), 0);
  const std::string bytes(segment->At(segment->layout().payload_offset), 1 << 20);
  EXPECT_EQ(bytes, std::string(1 << 20, 0x5A));
}

TEST(SegmentMemoryTest, OldSegmentOfSmallPagesIsMovedIntoHugeOnes) {
  if (!HostGivesHugePages()) GTEST_SKIP() << "SKIPPED: this host gives tmpfs no huge pages";
  const ShmDir dir;
  const std::string pattern = PatternBytes(3, 8 << 20);
  {
    ASSERT_OK_AND_ASSIGN(const auto segment,
                         Segment::Open(Options(dir / "dram-0", HugePages::kNever), kNow));
    EXPECT_EQ(segment->huge_bytes(), 0u);
    std::memcpy(segment->At(segment->layout().payload_offset), pattern.data(), pattern.size());
  }
  ASSERT_OK_AND_ASSIGN(const auto segment,
                       Segment::Open(Options(dir / "dram-0", HugePages::kTry), kNow));
  EXPECT_EQ(segment->huge_bytes(), kBytes);
  EXPECT_EQ(std::string(segment->At(segment->layout().payload_offset), pattern.size()), pattern);
}

TEST(SegmentMemoryTest, MemfdGetsThemToo) {
  if (!HostGivesHugePages()) GTEST_SKIP() << "SKIPPED: this host gives shared memory no huge pages";
  ASSERT_OK_AND_ASSIGN(
      const auto segment,
      Segment::Open(Options("memfd-test", HugePages::kRequire, SegmentKind::kMemfd), kNow));
  EXPECT_EQ(segment->huge_bytes(), kBytes);
}

// A disk's file system has none to give, whatever the host.
TEST(SegmentMemoryTest, TryGoesOnWithoutAndRequireSaysWhatToSet) {
  TempDir dir;
  {
    ASSERT_OK_AND_ASSIGN(const auto segment,
                         Segment::Open(Options(dir / "dram-0", HugePages::kTry), kNow));
    if (segment->huge_bytes() == kBytes) GTEST_SKIP() << "SKIPPED: /tmp gives huge pages here";
  }
  EXPECT_THAT(Segment::Open(Options(dir / "dram-0", HugePages::kRequire), kNow),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(dir / "dram-0"), HasSubstr("remount,huge="),
                             HasSubstr("shmem_enabled"))));
  EXPECT_EQ(access((dir / "dram-0").c_str(), F_OK), 0) << "it was there before: it stays";
  unlink((dir / "dram-0").c_str());
  EXPECT_FALSE(Segment::Open(Options(dir / "dram-0", HugePages::kRequire), kNow).ok());
  EXPECT_NE(access((dir / "dram-0").c_str(), F_OK), 0) << "a new file is not left behind";
}

// Sets hugetlb pages aside while the test runs, where the host lets it.
class HugetlbPages {
 public:
  explicit HugetlbPages(int pages) : before_(Read()) {
    std::ofstream(kPath) << before_ + pages;
    enough_ = Read() >= before_ + pages;
  }
  ~HugetlbPages() { std::ofstream(kPath) << before_; }
  bool enough() const { return enough_; }

 private:
  static constexpr char kPath[] = "/proc/sys/vm/nr_hugepages";
  static int Read() {
    int pages = 0;
    std::ifstream(kPath) >> pages;
    return pages;
  }
  const int before_;
  bool enough_ = false;
};

TEST(SegmentMemoryTest, MemfdTakesPagesThatWereSetAside) {
  const HugetlbPages pages(kBytes / kHugePageBytes);
  if (!pages.enough()) {
    GTEST_SKIP() << "SKIPPED: this host sets no hugetlb pages aside (vm.nr_hugepages)";
  }
  ASSERT_OK_AND_ASSIGN(
      const auto segment,
      Segment::Open(Options("memfd-test", HugePages::kRequire, SegmentKind::kMemfd), kNow));
  EXPECT_EQ(segment->huge_bytes(), kBytes);
  ASSERT_OK_AND_ASSIGN(const MappingInfo mapping, ReadMapping(segment->base()));
  EXPECT_TRUE(mapping.HasFlag("ht")) << "in hugetlb pages";
  EXPECT_TRUE(mapping.HasFlag("dd"));
  std::memset(segment->At(segment->layout().payload_offset), 1, 4 << 20);
}

TEST(SegmentMemoryTest, MoreThanTheHostHasIsRefusedBeforeItIsTaken) {
  const ShmDir dir;
  if (!dir.exists()) GTEST_SKIP() << "SKIPPED: no /dev/shm";
  SegmentOptions options = Options(dir / "dram-0", HugePages::kNever);
  options.bytes = kMaxSegmentBytes;
  if (AvailableMemoryBytes() > options.bytes) GTEST_SKIP() << "SKIPPED: the host has 64 GiB free";
  EXPECT_THAT(Segment::Open(options, kNow),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_NE(access((dir / "dram-0").c_str(), F_OK), 0);
}

TEST(SegmentMemoryTest, AllocationStopsWhenAsked) {
  TempDir dir;
  SegmentOptions options = Options(dir / "dram-0", HugePages::kNever);
  options.stop = [] { return true; };
  EXPECT_THAT(Segment::Open(options, kNow), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_NE(access((dir / "dram-0").c_str(), F_OK), 0);
}

TEST(SegmentMemoryTest, NamesAreThoseOfTheConfiguration) {
  for (const char* name : {"never", "try", "require"}) {
    ASSERT_OK_AND_ASSIGN(const HugePages parsed, ParseHugePages(name));
    EXPECT_STREQ(HugePagesName(parsed), name);
  }
  EXPECT_THAT(ParseHugePages("always"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("require")));
}

}  // namespace
}  // namespace cistern::store
