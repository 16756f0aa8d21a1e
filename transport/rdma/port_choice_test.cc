#include "transport/rdma/port_choice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::transport::rdma {
namespace {

using ::testing::HasSubstr;

Gid Ipv4(uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}; }
const Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};

Port RocePort(uint8_t number, uint8_t address) {
  Port port;
  port.number = number;
  port.state = LinkState::kActive;
  port.layer = LinkLayer::kEthernet;
  port.active_mtu_bytes = 1024;
  port.max_mtu_bytes = 4096;
  port.gids = {{0, kLinkLocal, GidType::kRoceV1, "eth1"},
               {1, kLinkLocal, GidType::kRoceV2, "eth1"},
               {3, Ipv4(address), GidType::kRoceV2, "eth1"}};
  return port;
}

// mlx5_0 with two ports, mlx5_1 with one.
std::vector<Device> TwoDevices() {
  std::vector<Device> devices(2);
  devices[0].name = "mlx5_0";
  devices[0].numa_node = 1;
  devices[0].ports = {RocePort(1, 1), RocePort(2, 2)};
  devices[1].name = "mlx5_1";
  devices[1].ports = {RocePort(1, 3)};
  return devices;
}

std::vector<std::string> Names(const PortChoice& choice) {
  std::vector<std::string> names;
  for (const ChosenPort& port : choice.chosen) names.push_back(port.name());
  return names;
}

TEST(PortChoiceTest, TakesEveryPortWhoseLinkIsUp) {
  std::vector<Device> devices = TwoDevices();
  devices[0].ports[1].state = LinkState::kDown;
  const PortChoice choice = *ChoosePorts(devices, {});
  EXPECT_EQ(Names(choice), (std::vector<std::string>{"mlx5_0:1", "mlx5_1:1"}));
  EXPECT_EQ(choice.chosen[0].gid.index, 3);
  EXPECT_EQ(choice.chosen[0].address, "10.0.0.1");
  EXPECT_EQ(choice.chosen[0].mtu_bytes, 1024u);
  EXPECT_EQ(choice.chosen[0].numa_node, 1);
  EXPECT_EQ(choice.chosen[1].numa_node, -1);
  ASSERT_EQ(choice.passed.size(), 1u);
  EXPECT_EQ(choice.passed[0].name, "mlx5_0:2");
  EXPECT_EQ(choice.passed[0].why, "link down");
}

TEST(PortChoiceTest, TakesTheConfiguredOnly) {
  EXPECT_EQ(Names(*ChoosePorts(TwoDevices(), {.devices = "mlx5_1, mlx5_0:2,"})),
            (std::vector<std::string>{"mlx5_0:2", "mlx5_1:1"}));
}

TEST(PortChoiceTest, RefusesWhatIsNotThere) {
  const auto refused = [](const PortOptions& options) {
    const absl::Status status = ChoosePorts(TwoDevices(), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused({.devices = "mlx5_7"}), HasSubstr("mlx5_0, mlx5_1"));
  EXPECT_THAT(refused({.devices = "mlx5_1:2"}), HasSubstr("1 port(s)"));
  for (const char* bad : {"mlx5_0:", "mlx5_0:0", "mlx5_0:x", ":1", "mlx5_0:1:1", "mlx5_0:256"}) {
    EXPECT_THAT(refused({.devices = bad}), HasSubstr(bad));
  }
  for (const uint32_t mtu : {1u, 128u, 1500u, 8192u}) {
    EXPECT_THAT(refused({.mtu_bytes = mtu}), HasSubstr("no MTU"));
  }
}

TEST(PortChoiceTest, AGidIndexOverridesTheChoice) {
  const PortChoice choice = *ChoosePorts(TwoDevices(), {.devices = "mlx5_1", .gid_index = 1});
  ASSERT_EQ(choice.chosen.size(), 1u);
  EXPECT_EQ(choice.chosen[0].gid.index, 1);
  EXPECT_EQ(choice.chosen[0].address, "fe80::200:ff:fe00:1%eth1");
  const PortChoice none = *ChoosePorts(TwoDevices(), {.devices = "mlx5_1", .gid_index = 2});
  EXPECT_TRUE(none.chosen.empty());
  EXPECT_THAT(none.passed.back().why, HasSubstr("gid_index"));
}

TEST(PortChoiceTest, AnMtuLowersThePortsAndNeverRaisesIt) {
  EXPECT_EQ(ChoosePorts(TwoDevices(), {.mtu_bytes = 512})->chosen[0].mtu_bytes, 512u);
  EXPECT_EQ(ChoosePorts(TwoDevices(), {.mtu_bytes = 4096})->chosen[0].mtu_bytes, 1024u);
}

TEST(PortChoiceTest, AnInfiniBandPortNeedsASubnetManagerAndAnAddress) {
  std::vector<Device> devices(1);
  devices[0].name = "ib0";
  Port port = RocePort(1, 1);
  port.layer = LinkLayer::kInfiniband;
  port.gids = {{0, kLinkLocal, GidType::kInfiniband, ""}};
  devices[0].ports = {port};
  EXPECT_THAT(ChoosePorts(devices, {})->passed[0].why, HasSubstr("subnet manager"));
  devices[0].ports[0].lid = 7;
  EXPECT_THAT(ChoosePorts(devices, {})->passed[0].why, HasSubstr("IP over InfiniBand"));
  devices[0].ports[0].addresses = {"10.1.0.1"};
  EXPECT_EQ(ChoosePorts(devices, {})->chosen[0].address, "10.1.0.1");
}

TEST(PortChoiceTest, SaysWhyADeviceIsPassedBy) {
  std::vector<Device> devices = TwoDevices();
  devices[0].ports.clear();
  devices[0].opened = absl::PermissionDeniedError("opening the RDMA device mlx5_0: no");
  devices[1].iwarp = true;
  const PortChoice choice = *ChoosePorts(devices, {});
  ASSERT_EQ(choice.passed.size(), 2u);
  EXPECT_THAT(choice.passed[0].why, HasSubstr("opening"));
  EXPECT_THAT(choice.passed[1].why, HasSubstr("iWARP"));
  devices[1].iwarp = false;
  devices[1].ports[0].gids.clear();
  EXPECT_THAT(ChoosePorts(devices, {})->passed[1].why, HasSubstr("no GID"));
  EXPECT_TRUE(ChoosePorts({}, {})->chosen.empty());
}

}  // namespace
}  // namespace cistern::transport::rdma
