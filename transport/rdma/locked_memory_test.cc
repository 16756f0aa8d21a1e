#include "transport/rdma/locked_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::transport::rdma {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kStatus[] =
    "Name:\tstore\nVmLck:\t      64 kB\nVmPin:\t    1024 kB\nVmRSS:\t  9999 kB\n"
    "CapEff:\t0000000000000000\nThreads:\t1\n";
// CAP_IPC_LOCK, bit 14, is all that is set.
constexpr char kExempt[] = "VmLck:\t0 kB\nVmPin:\t0 kB\nCapEff:\t0000000000004000\n";

TEST(LockedMemoryTest, AddsWhatIsLockedAndPinned) {
  const LockedMemory memory = internal::ParseLockedMemory(kStatus, 8 << 20);
  EXPECT_EQ(memory.used_bytes, (64u + 1024) * 1024);
  EXPECT_EQ(memory.limit_bytes, 8u << 20);
  EXPECT_FALSE(memory.exempt);
}

TEST(LockedMemoryTest, NoLimitBindsWhoIsExemptOrUnlimited) {
  const LockedMemory exempt = internal::ParseLockedMemory(kExempt, 8 << 20);
  EXPECT_TRUE(exempt.exempt);
  EXPECT_FALSE(exempt.limit_bytes.has_value());
  EXPECT_EQ(exempt.limit_setting_bytes, 8u << 20);
  EXPECT_FALSE(internal::ParseLockedMemory(kStatus, UINT64_MAX).limit_bytes.has_value());
}

TEST(LockedMemoryTest, AdvisesOnlyWhereTheLimitIsWhy) {
  const LockedMemory memory = internal::ParseLockedMemory(kStatus, 2 << 20);
  // 2 MiB less 1,088 KiB leaves 983,040 bytes.
  EXPECT_EQ(internal::LockedMemoryAdvice(memory, 983'040), "");
  EXPECT_THAT(internal::LockedMemoryAdvice(memory, 983'041),
              AllOf(HasSubstr("ulimit -l"), HasSubstr("LimitMEMLOCK"), HasSubstr("2097152"),
                    HasSubstr("1114112")));
  EXPECT_EQ(internal::LockedMemoryAdvice(internal::ParseLockedMemory(kExempt, 1), 1 << 30), "");
}

TEST(LockedMemoryTest, GarbageIsNothing) {
  const LockedMemory memory = internal::ParseLockedMemory("VmLck:\nVmPin: x kB\nCapEff: zz\n", 5);
  EXPECT_EQ(memory.used_bytes, 0u);
  EXPECT_FALSE(memory.exempt);
}

}  // namespace
}  // namespace cistern::transport::rdma
