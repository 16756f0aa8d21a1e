#include "client/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/mapping.h"
#include "base/test_util.h"

namespace cistern {
namespace {

TEST(SharedMemoryTest, IsZeroedPageAlignedAndSealed) {
  ASSERT_OK_AND_ASSIGN(const SharedMemory memory, SharedMemory::Allocate(5000));
  EXPECT_EQ(memory.bytes(), 8192u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
  auto* bytes = static_cast<char*>(memory.data());
  EXPECT_TRUE(std::all_of(bytes, bytes + 8192, [](char c) { return c == 0; }));
  bytes[8191] = 'x';
  char back = 0;
  ASSERT_EQ(pread(memory.fd(), &back, 1, 8191), 1);
  EXPECT_EQ(back, 'x');
  // Whoever was lent it is safe from a truncation.
  EXPECT_NE(ftruncate(memory.fd(), 4096), 0);
  EXPECT_NE(ftruncate(memory.fd(), 16384), 0);
}

TEST(SharedMemoryTest, NothingButItsMappingChangesIt) {
  ASSERT_OK_AND_ASSIGN(const SharedMemory memory, SharedMemory::Allocate(8192));
  auto* bytes = static_cast<char*>(memory.data());
  bytes[0] = 'x';
  EXPECT_NE(fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(madvise(memory.data(), 4096, MADV_REMOVE), 0);
  EXPECT_NE(pwrite(memory.fd(), "y", 1, 0), 1);
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0), MAP_FAILED);
  EXPECT_EQ(bytes[0], 'x');
  bytes[0] = 'z';
  char back = 0;
  ASSERT_EQ(pread(memory.fd(), &back, 1, 0), 1);
  EXPECT_EQ(back, 'z');
}

TEST(SharedMemoryTest, IsLeftOutOfCoreDumps) {
  ASSERT_OK_AND_ASSIGN(const SharedMemory memory, SharedMemory::Allocate(1 << 20));
  ASSERT_OK_AND_ASSIGN(const MappingInfo mapping, ReadMapping(memory.data()));
  EXPECT_TRUE(mapping.HasFlag("dd"));
  EXPECT_GE(mapping.end, reinterpret_cast<uint64_t>(memory.data()) + memory.bytes());
}

TEST(SharedMemoryTest, MovesLeaveNothingBehind) {
  ASSERT_OK_AND_ASSIGN(SharedMemory a, SharedMemory::Allocate(4096));
  void* const data = a.data();
  SharedMemory b = std::move(a);
  EXPECT_EQ(b.data(), data);
  const int fd = b.fd();
  {
    const SharedMemory last = std::move(b);
    EXPECT_NE(fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);  // closed with its last owner
}

TEST(SharedMemoryTest, RefusesNothingAndTooMuch) {
  EXPECT_THAT(SharedMemory::Allocate(0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SharedMemory::Allocate(UINT64_MAX), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cistern
