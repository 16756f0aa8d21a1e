#include "store/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

using testing::HasSubstr;

constexpr absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

class SegmentTest : public testing::Test {
 protected:
  SegmentOptions Options() const {
    SegmentOptions options;
    options.path = dir_ / "dram-0";
    options.bytes = 8 << 20;
    options.pool_id.bytes.fill(7);
    return options;
  }
  // Writes over the file's superblock.
  void Change(size_t offset, uint64_t value, size_t bytes, bool fix_crc) {
    const int fd = open(Options().path.c_str(), O_RDWR);
    Superblock s;
    ASSERT_EQ(pread(fd, &s, sizeof(s), 0), static_cast<ssize_t>(sizeof(s)));
    std::memcpy(reinterpret_cast<char*>(&s) + offset, &value, bytes);
    if (fix_crc) s.crc32c = SuperblockCrc(s);
    ASSERT_EQ(pwrite(fd, &s, sizeof(s), 0), static_cast<ssize_t>(sizeof(s)));
    close(fd);
  }
  void Create() { ASSERT_OK(Segment::Open(Options(), kNow)); }

  TempDir dir_;
};

TEST_F(SegmentTest, LayoutIsWorkedOutFromTheSizes) {
  // 8 MiB at 64 KiB a chunk: 16 namespace slots of 5,120 B behind the superblock end at 86,016 =
  // 21 pages; 128 headers of 128 B take 4 pages.
  const SegmentLayout small = *SegmentLayout::Make(8 << 20, 64 << 10);
  EXPECT_EQ(small.namespace_offset, 4096u);
  EXPECT_EQ(small.namespace_slots, 16u);
  EXPECT_EQ(small.header_offset, 86'016u);
  EXPECT_EQ(small.header_count, 128u);
  EXPECT_EQ(small.payload_offset, 102'400u);
  // 64 GiB at 4 KiB a chunk: 1,024 slots (5 MiB), 16 Mi headers (2 GiB).
  const SegmentLayout large = *SegmentLayout::Make(uint64_t{64} << 30, 4096);
  EXPECT_EQ(large.namespace_slots, 1024u);
  EXPECT_EQ(large.header_offset, 4096u + (5 << 20));
  EXPECT_EQ(large.header_count, 1u << 24);
  EXPECT_EQ(large.payload_offset, large.header_offset + (uint64_t{2} << 30));
  EXPECT_FALSE(SegmentLayout::Make((8 << 20) - 4096, 65'536).ok());
  EXPECT_FALSE(SegmentLayout::Make((8 << 20) + 1, 65'536).ok());
  EXPECT_FALSE(SegmentLayout::Make((uint64_t{64} << 30) + 4096, 65'536).ok());
  EXPECT_FALSE(SegmentLayout::Make(8 << 20, 4095).ok());
}

TEST_F(SegmentTest, FileOutlivesItsOwner) {
  SegmentId id;
  {
    ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(Options(), kNow));
    EXPECT_FALSE(segment->attached());
    EXPECT_TRUE(segment->persistent());
    id = segment->id();
    std::memcpy(segment->At(segment->layout().payload_offset), "still here", 10);
  }
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(Options(), kNow));
  EXPECT_TRUE(segment->attached());
  EXPECT_EQ(segment->id(), id);
  EXPECT_EQ(std::string(segment->At(segment->layout().payload_offset), 10), "still here");
}

TEST_F(SegmentTest, FileIsPrivateAndFullyBacked) {
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(Options(), kNow));
  struct stat st;
  ASSERT_EQ(stat(Options().path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(st.st_size, 8 << 20);
  EXPECT_GE(st.st_blocks * 512, 8 << 20);
}

TEST_F(SegmentTest, AttachKeepsTheFilesOwnLayout) {
  Create();
  SegmentOptions other = Options();
  other.expected_chunk_bytes = 4096;
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(other, kNow));
  EXPECT_EQ(segment->headers().size(), 128u);
}

TEST_F(SegmentTest, SecondOwnerIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(Options(), kNow));
  EXPECT_THAT(Segment::Open(Options(), kNow), StatusIs(kRefused, HasSubstr("another process")));
}

TEST_F(SegmentTest, AnotherPoolsFileIsRefused) {
  Create();
  SegmentOptions other = Options();
  other.pool_id.bytes.fill(8);
  EXPECT_THAT(Segment::Open(other, kNow),
              StatusIs(kRefused, HasSubstr("belongs to pool 0707070707070707")));
}

TEST_F(SegmentTest, NewerFormatIsRefused) {
  Create();
  Change(offsetof(Superblock, format_version), 2, 4, true);
  EXPECT_THAT(Segment::Open(Options(), kNow), StatusIs(kRefused, HasSubstr("segment format 2")));
}

TEST_F(SegmentTest, DamagedSuperblockIsRefused) {
  Create();
  Change(offsetof(Superblock, header_count), 64, 4, false);
  EXPECT_THAT(Segment::Open(Options(), kNow), StatusIs(kRefused, HasSubstr("damaged")));
}

TEST_F(SegmentTest, SizesThatDoNotFitAreRefused) {
  Create();
  Change(offsetof(Superblock, header_count), 1 << 20, 4, true);
  EXPECT_THAT(Segment::Open(Options(), kNow), StatusIs(kRefused, HasSubstr("do not fit")));
}

TEST_F(SegmentTest, OtherSizeThanConfiguredIsRefused) {
  Create();
  SegmentOptions larger = Options();
  larger.bytes = 16 << 20;
  EXPECT_THAT(Segment::Open(larger, kNow),
              StatusIs(kRefused, HasSubstr("has 8388608 bytes where the configuration says")));
}

TEST_F(SegmentTest, StrangersFileIsRefusedAndLeftAlone) {
  WriteFile(Options().path, std::string(8 << 20, 'x'));
  EXPECT_THAT(Segment::Open(Options(), kNow), StatusIs(kRefused, HasSubstr("not a segment")));
  EXPECT_EQ(ReadFile(Options().path), std::string(8 << 20, 'x'));
}

TEST_F(SegmentTest, FormatCutShortIsDoneAgain) {
  Create();
  // As a kill leaves it: everything but the magic, and something in a table.
  Change(offsetof(Superblock, magic), 0, 8, false);
  {
    const int fd = open(Options().path.c_str(), O_RDWR);
    ASSERT_EQ(pwrite(fd, "junk", 4, 86'016), 4);
    close(fd);
  }
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(Options(), kNow));
  EXPECT_FALSE(segment->attached());
  EXPECT_EQ(segment->headers()[0].word, 0u);
}

TEST_F(SegmentTest, NoRoomIsSaidAtOnceAndLeavesNoFile) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small = {1 << 20, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto segment = Segment::Open(Options(), kNow);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_THAT(segment, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_NE(access(Options().path.c_str(), F_OK), 0);
}

TEST_F(SegmentTest, SymlinkIsNotFollowed) {
  WriteFile(dir_ / "target", "");
  ASSERT_EQ(symlink((dir_ / "target").c_str(), Options().path.c_str()), 0);
  EXPECT_FALSE(Segment::Open(Options(), kNow).ok());
}

TEST_F(SegmentTest, MemfdCanNeitherShrinkNorGrowButBeMappedAgain) {
  SegmentOptions options = Options();
  options.kind = SegmentKind::kMemfd;
  ASSERT_OK_AND_ASSIGN(auto segment, Segment::Open(options, kNow));
  EXPECT_FALSE(segment->persistent());
  EXPECT_EQ(fcntl(segment->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_NE(ftruncate(segment->fd(), 4096), 0);
  EXPECT_NE(ftruncate(segment->fd(), 16 << 20), 0);
  void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd(), 0);
  ASSERT_NE(p, MAP_FAILED);
  EXPECT_EQ(std::memcmp(p, "CISTSEG1", 8), 0);
  munmap(p, 4096);
}

}  // namespace
}  // namespace cistern::store
