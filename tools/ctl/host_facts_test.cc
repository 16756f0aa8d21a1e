#include "tools/ctl/host_facts.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A system in a folder.
class HostFactsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path at = root_ + path;
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at) << text;
  }
  HostFacts Gather() { return *GatherHostFacts({}, root_); }

  const std::string root_ = ::testing::TempDir() + "/host-" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(HostFactsTest, ReadsWhatTheKernelTells) {
  Write("/proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
  Write("/proc/meminfo",
        "MemTotal: 16 kB\nHugePages_Total:     512\nHugePages_Free:      500\n"
        "Hugepagesize:       2048 kB\n");
  Write("/sys/module/ib_uverbs/refcnt", "1\n");
  Write("/sys/module/nvidia_peermem/refcnt", "1\n");
  Write("/dev/infiniband/uverbs3", "");
  Write("/dev/infiniband/issm0", "");
  const HostFacts facts = Gather();
  EXPECT_EQ(facts.kernel, "6.1.0-57-amd64");
  EXPECT_EQ(facts.huge_pages_total, 512u);
  EXPECT_EQ(facts.huge_pages_free, 500u);
  EXPECT_EQ(facts.huge_page_bytes, 2048u * 1024);
  EXPECT_THAT(facts.modules, ElementsAre("ib_uverbs", "nvidia_peermem"));
  ASSERT_EQ(facts.device_files.size(), 1u);
  EXPECT_EQ(facts.device_files[0].path, "/dev/infiniband/uverbs3");
  EXPECT_TRUE(facts.device_files[0].ours);
}

TEST_F(HostFactsTest, FindsAdaptersThatHaveNoDevice) {
  Write("/sys/bus/pci/devices/0000:01:00.0/class", "0x020700\n");
  Write("/sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
  Write("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x15b3\n");
  Write("/sys/bus/pci/devices/0000:03:00.0/class", "0x020700\n");
  Write("/sys/bus/pci/devices/0000:03:00.0/infiniband/mlx5_0/node_guid", "x\n");
  Write("/sys/bus/pci/devices/0000:04:00.0/class", "0x020000\n");
  Write("/sys/bus/pci/devices/0000:04:00.0/vendor", "0x8086\n");
  EXPECT_THAT(Gather().idle_adapters, ElementsAre("0000:01:00.0", "0000:02:00.0"));
}

TEST_F(HostFactsTest, CountsAPortsErrorsAndLeavesZerosOut) {
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  Write(port + "counters/link_downed", "2\n");
  Write(port + "counters/symbol_error", "0\n");
  Write(port + "counters/port_xmit_data", "12345\n");
  Write(port + "hw_counters/out_of_sequence", "7\n");
  const HostFacts facts = Gather();
  ASSERT_EQ(facts.errors.size(), 1u);
  EXPECT_EQ(facts.errors[0].port, "mlx5_0:1");
  EXPECT_THAT(facts.errors[0].counts,
              ElementsAre(Pair("link_downed", 2u), Pair("out_of_sequence", 7u)));
}

TEST_F(HostFactsTest, AnEmptySystemHasNothing) {
  const HostFacts facts = Gather();
  EXPECT_EQ(facts.kernel, "");
  EXPECT_TRUE(facts.modules.empty());
  EXPECT_TRUE(facts.device_files.empty());
  EXPECT_TRUE(facts.errors.empty());
}

}  // namespace
}  // namespace cistern::ctl
