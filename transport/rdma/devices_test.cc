// What the enumeration says, held against what the kernel says elsewhere.
#include "transport/rdma/devices.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/rdma/handles.h"
#include "transport/rdma/port_choice.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport::rdma {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

const Device* Find(const std::vector<Device>& devices, const std::string& name) {
  for (const Device& device : devices) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

TEST(DevicesTest, NamesWhatTheKernelNames) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  const std::vector<Device> devices = *ListDevices();
  for (const Device& device : devices) {
    SCOPED_TRACE(device.name);
    ASSERT_TRUE(device.opened.ok()) << device.opened;
    const std::string folder = absl::StrCat("/sys/class/infiniband/", device.name);
    for (const Port& port : device.ports) {
      const std::string at = absl::StrCat(folder, "/ports/", static_cast<int>(port.number));
      // "4: ACTIVE", "Ethernet"
      EXPECT_EQ(port.state == LinkState::kActive, ReadLine(at + "/state") == "4: ACTIVE");
      EXPECT_EQ(port.layer == LinkLayer::kEthernet, ReadLine(at + "/link_layer") == "Ethernet");
      for (const GidEntry& gid : port.gids) {
        const std::string type = ReadLine(absl::StrCat(at, "/gid_attrs/types/", gid.index));
        EXPECT_EQ(gid.type == GidType::kRoceV2, type == "RoCE v2") << gid.index;
        EXPECT_EQ(gid.net_device, ReadLine(absl::StrCat(at, "/gid_attrs/ndevs/", gid.index)));
      }
    }
    EXPECT_GT(device.limits.max_work_requests, 0u);
    EXPECT_GT(device.limits.max_region_bytes, uint64_t{1} << 30);
  }
}

// The devices that tools/rdma-vm --pair makes.
TEST(DevicesTest, DescribesTheSoftwareDevices) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (!InRdmaVm()) GTEST_SKIP() << "skipped: not in the VM of tools/rdma-vm";
  ASSERT_EQ(ports.size(), 3u);
  EXPECT_EQ(ports[0].name(), "rxe0:1");
  EXPECT_EQ(ports[0].address, "10.77.0.1");
  EXPECT_EQ(ports[0].gid.net_device, "dummy0");
  EXPECT_EQ(ports[0].mtu_bytes, 4096u);  // Of an interface with 9,000 bytes.
  EXPECT_EQ(ports[1].address, "10.78.0.1");
  EXPECT_EQ(ports[2].address, "10.78.0.2");
  const std::vector<Device> devices = *ListDevices();
  const Device* device = Find(devices, "rxe0");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->driver, "rdma_rxe");
  EXPECT_EQ(device->numa_node, -1);
  EXPECT_THAT(device->ports[0].addresses, Contains("fd77::1"));
  // From the driver's source: drivers/infiniband/sw/rxe/rxe_param.h of Linux 6.1.
  EXPECT_TRUE(device->limits.windows_2b);
  EXPECT_EQ(device->limits.max_pieces, 32u);
  EXPECT_EQ(device->limits.max_shared_pieces, 27u);
  EXPECT_EQ(device->limits.max_completions, 32767u);
  EXPECT_EQ(device->limits.max_reads_in, 128u);
}

TEST(DevicesTest, ALinkThatGoesDownIsSeenAndComesBack) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (!InRdmaVm()) GTEST_SKIP() << "skipped: takes a link down: only in the VM of tools/rdma-vm";
  const auto passed = [] {
    const PortChoice choice = *ChoosePorts(*ListDevices(), {});
    for (const PassedPort& port : choice.passed) {
      if (port.name == "rxe1:1") return port.why;
    }
    return std::string();
  };
  const auto wait_until = [&](bool out) {
    const MonoTime end = Clock::Real().Mono() + absl::Seconds(20);
    while (passed().empty() == out && Clock::Real().Mono() < end) {
      Clock::Real().SleepFor(absl::Milliseconds(10));
    }
    return passed();
  };
  ASSERT_EQ(passed(), "");
  ASSERT_EQ(std::system("ip link set veth1 down"), 0);
  EXPECT_THAT(wait_until(true), StartsWith("link down"));
  ASSERT_EQ(std::system("ip link set veth1 up"), 0);
  EXPECT_EQ(wait_until(false), "");
}

TEST(DevicesTest, AnUnknownDeviceIsNotFound) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  EXPECT_EQ(OpenDevice("no_such_device").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cistern::transport::rdma
