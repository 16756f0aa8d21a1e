// A device's regions, overlapping ones too.
#include "transport/rdma/memory.h"

#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/rdma/host.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport::rdma {
namespace {

constexpr size_t kPage = 4096;

class DeviceMemoryTest : public testing::Test {
 protected:
  void Open() {
    std::vector<ChosenPort> ports;
    CISTERN_TEST_PORTS_OR_SKIP(ports);
    ASSERT_OK_AND_ASSIGN(host_, Host::Open({}));
  }
  DeviceMemory& memory() { return host_->devices()[0]->memory; }
  ibv_pd* domain() { return host_->devices()[0]->domain.get(); }
  char* At(size_t pages) { return bytes_.get() + pages * kPage; }

  std::unique_ptr<char[]> bytes_{new char[10 * kPage]};  // before the host: regions go first
  std::shared_ptr<Host> host_;
  MemoryKeys keys_;
};

TEST_F(DeviceMemoryTest, FindsTheRegionWithTheRightsThatAreNeeded) {
  Open();
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_OK(memory().Register(domain(), At(1), 2 * kPage, MemoryRights::kRemoteRead));
  EXPECT_FALSE(memory().Find(At(1) - 1, MemoryRights::kLocal, &keys_));
  EXPECT_FALSE(memory().Find(At(3), MemoryRights::kLocal, &keys_));
  EXPECT_FALSE(memory().Find(At(1), MemoryRights::kRemoteWrite, &keys_));
  ASSERT_TRUE(memory().Find(At(2) + 7, MemoryRights::kRemoteRead, &keys_));
  EXPECT_EQ(keys_.bytes_left, kPage - 7);
  // The same range with other rights beside it.
  ASSERT_OK(memory().Register(domain(), At(1), 2 * kPage, MemoryRights::kRemoteWrite));
  const uint32_t read_key = keys_.remote_key;
  ASSERT_TRUE(memory().Find(At(1), MemoryRights::kRemoteWrite, &keys_));
  EXPECT_NE(keys_.remote_key, read_key);
}

TEST_F(DeviceMemoryTest, OverlappingRegionsAreKeptAsLongAsAnyOfThemIsUsed) {
  Open();
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_OK(memory().Register(domain(), At(0), 6 * kPage, MemoryRights::kRemote));
  ASSERT_OK(memory().Register(domain(), At(4), 4 * kPage, MemoryRights::kRemote));
  ASSERT_OK(memory().Register(domain(), At(1), kPage, MemoryRights::kRemote));
  // Behind the short one, in the long one that begins before it.
  ASSERT_TRUE(memory().Find(At(3), MemoryRights::kRemote, &keys_));
  EXPECT_EQ(keys_.bytes_left, 3 * kPage);
  EXPECT_FALSE(memory().Remove(At(0), kPage));
  EXPECT_TRUE(memory().Remove(At(0), 6 * kPage));
  EXPECT_FALSE(memory().Find(At(3), MemoryRights::kRemote, &keys_));
  ASSERT_TRUE(memory().Find(At(4), MemoryRights::kRemote, &keys_));
  EXPECT_EQ(keys_.bytes_left, 4 * kPage);
  // Calls on what overlaps it may have its key: the device knows it until they are through.
  EXPECT_EQ(memory().regions(), 3u);
  EXPECT_TRUE(memory().Remove(At(1), kPage));
  EXPECT_TRUE(memory().Remove(At(4), 4 * kPage));
  EXPECT_EQ(memory().regions(), 0u);
}

TEST_F(DeviceMemoryTest, LargeMemoryIsRegisteredInPieces) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  HostOptions options;
  options.region_bytes = 2 * kPage;
  ASSERT_OK_AND_ASSIGN(host_, Host::Open(options));
  ASSERT_OK(host_->AddMemory(At(0), 9 * kPage, MemoryRights::kLocal));
  for (const auto& device : host_->devices()) EXPECT_EQ(device->memory.regions(), 5u);
  ASSERT_TRUE(memory().Find(At(1), MemoryRights::kLocal, &keys_));
  EXPECT_EQ(keys_.bytes_left, kPage);
  ASSERT_TRUE(memory().Find(At(8), MemoryRights::kLocal, &keys_));
  EXPECT_EQ(keys_.bytes_left, kPage);
  host_->RemoveMemory(At(0), 9 * kPage);
  for (const auto& device : host_->devices()) EXPECT_EQ(device->memory.regions(), 0u);
  // All or nothing: behind the first pages there is no memory.
  void* two = mmap(nullptr, 16 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<char*>(two) + 4 * kPage, 12 * kPage), 0);
  EXPECT_FALSE(host_->AddMemory(two, 16 * kPage, MemoryRights::kLocal).ok());
  munmap(two, 4 * kPage);
  for (const auto& device : host_->devices()) EXPECT_EQ(device->memory.regions(), 0u);
}

}  // namespace
}  // namespace cistern::transport::rdma
