// What of a client's memory a store may map, and that looking for what is there takes no memory.

#include "transport/shm/lent_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

OwnedFd MakeMemory(uint64_t bytes, int seals, unsigned flags = 0) {
  OwnedFd fd(memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

// As the owner of memory with kSeals does: by a mapping that was there before.
class Owned {
 public:
  explicit Owned(uint64_t bytes) : bytes_(bytes), fd_(MakeMemory(bytes, F_SEAL_SHRINK)) {
    data_ = static_cast<char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), /*offset=*/0));
    EXPECT_NE(data_, MAP_FAILED);
    EXPECT_EQ(fcntl(fd_.get(), F_ADD_SEALS, kSeals), 0);
  }
  ~Owned() { munmap(data_, bytes_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  char* data() const { return data_; }
  int fd() const { return fd_.get(); }
  uint64_t allocated_bytes() const {
    struct stat info {};
    EXPECT_EQ(fstat(fd_.get(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

 private:
  const uint64_t bytes_;
  const OwnedFd fd_;
  char* data_;
};

TEST(LentMappingTest, OnlySealsAgainstEndAndHolesAllowIt) {
  EXPECT_TRUE(MayMapLent(MakeMemory(8192, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE).get()));
  EXPECT_TRUE(MayMapLent(MakeMemory(8192, F_SEAL_SHRINK | F_SEAL_WRITE).get()));
  EXPECT_FALSE(MayMapLent(MakeMemory(8192, F_SEAL_SHRINK | F_SEAL_GROW).get()));
  EXPECT_FALSE(MayMapLent(MakeMemory(8192, F_SEAL_GROW | F_SEAL_FUTURE_WRITE).get()));
  EXPECT_FALSE(MayMapLent(MakeMemory(8192, F_SEAL_WRITE).get()));
  const TempDir folder;
  WriteFile(folder / "file", std::string(8192, 'f'));
  EXPECT_FALSE(MayMapLent(OwnedFd(open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC)).get()));
}

TEST(LentMappingTest, HugePagesAreNot) {
  // Making one takes no huge page.
  const OwnedFd fd(memfd_create("lent", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(ftruncate(fd.get(), off_t{1} << 30), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kSeals), 0);
  EXPECT_FALSE(MayMapLent(fd.get()));
}

TEST(LentMappingTest, AnotherUsersMemoryIsNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give memory away";
  for (const uid_t owner : {uid_t{1}, uid_t{65534}}) {
    const OwnedFd fd = MakeMemory(8192, kSeals);
    ASSERT_EQ(fchown(fd.get(), owner, owner), 0);
    EXPECT_FALSE(MayMapLent(fd.get())) << owner;
  }
}

TEST(LentMappingTest, FindsWhatIsThere) {
  const Owned memory(1 << 20);
  const std::string text = "what lies across two pages";
  std::copy(text.begin(), text.end(), memory.data() + 8190);
  LentMapping mapping = LentMapping::Map(memory.fd(), 1 << 20);
  ASSERT_TRUE(mapping);
  const char* const found = mapping.Find(8190, text.size());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(std::string(found, text.size()), text);
  // Both pages to their ends, and no further.
  EXPECT_NE(mapping.Find(4096, 8192), nullptr);
  EXPECT_EQ(mapping.Find(4095, 2), nullptr);
  EXPECT_EQ(mapping.Find(12287, 2), nullptr);
  EXPECT_EQ(mapping.Find(0, 1 << 20), nullptr);
  EXPECT_EQ(mapping.Find((1 << 20) - 1, 1), nullptr);
}

TEST(LentMappingTest, RemembersWhatIsThereAndNothingElse) {
  // Pages are remembered by 64 KiB; the last stretch of this memory is shorter.
  constexpr uint64_t kBytes = 300'000;
  const Owned memory(kBytes);
  std::fill(memory.data() + 65'536, memory.data() + 196'608, 'x');
  LentMapping mapping = LentMapping::Map(memory.fd(), kBytes);
  ASSERT_TRUE(mapping);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(mapping.Find(65'535, 2), nullptr);
    EXPECT_NE(mapping.Find(70'000, 100'000), nullptr);
    EXPECT_NE(mapping.Find(65'536, 131'072), nullptr);
    EXPECT_EQ(mapping.Find(65'536, 131'073), nullptr);
    EXPECT_EQ(mapping.Find(190'000, 10'000), nullptr);
    EXPECT_EQ(mapping.Find(299'999, 1), nullptr);
  }
  std::fill(memory.data() + 196'608, memory.data() + kBytes, 'y');
  EXPECT_NE(mapping.Find(190'000, 110'000), nullptr);
  EXPECT_NE(mapping.Find(299'999, 1), nullptr);
  EXPECT_EQ(mapping.Find(0, kBytes), nullptr);
}

TEST(LentMappingTest, LookingTakesNoMemory) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  const Owned memory(kBytes);
  LentMapping mapping = LentMapping::Map(memory.fd(), kBytes);
  ASSERT_TRUE(mapping);
  for (uint64_t at = 0; at < kBytes; at += 256 << 10) {
    ASSERT_EQ(mapping.Find(at, 256 << 10), nullptr);
  }
  EXPECT_EQ(memory.allocated_bytes(), 0u);
  // What its owner writes is found from then on, also where it was missed before.
  memory.data()[5000] = 'x';
  const char* const found = mapping.Find(5000, 1);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, 'x');
  EXPECT_EQ(memory.allocated_bytes(), 4096u);
}

TEST(LentMappingTest, WhatWasFoundStaysWhateverItsOwnerDoes) {
  const Owned memory(1 << 20);
  memory.data()[0] = 'x';
  LentMapping mapping = LentMapping::Map(memory.fd(), 1 << 20);
  const char* const found = mapping.Find(0, 1);
  ASSERT_NE(found, nullptr);
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
  EXPECT_NE(fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(madvise(memory.data(), 4096, MADV_REMOVE), 0);
  (void)madvise(memory.data(), 4096, MADV_DONTNEED);
  EXPECT_EQ(*found, 'x');
  EXPECT_NE(mapping.Find(0, 1), nullptr);
}

TEST(LentMappingTest, MovesLeaveNothingBehind) {
  const Owned memory(8192);
  memory.data()[0] = 'x';
  LentMapping a = LentMapping::Map(memory.fd(), 8192);
  LentMapping b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: looked at on purpose
  EXPECT_EQ(a.bytes(), 0u);
  ASSERT_TRUE(b);
  EXPECT_EQ(b.bytes(), 8192u);
  EXPECT_NE(b.Find(0, 1), nullptr);
}

}  // namespace
}  // namespace cistern::transport
