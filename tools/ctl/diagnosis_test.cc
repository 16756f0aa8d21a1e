#include "tools/ctl/diagnosis.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/doctor_text.h"

namespace cistern::ctl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using transport::rdma::ChoosePorts;
using transport::rdma::Device;
using transport::rdma::GidType;
using transport::rdma::LinkLayer;
using transport::rdma::LinkState;

auto Is(Severity severity, const std::string& about, const std::string& what,
        const std::string& fix = "") {
  return AllOf(Field(&Finding::severity, severity), Field(&Finding::about, HasSubstr(about)),
               Field(&Finding::what, HasSubstr(what)), Field(&Finding::fix, HasSubstr(fix)));
}

// A host on which nothing is wrong: one card, one active RoCE port.
HostFacts GoodHost() {
  HostFacts facts;
  facts.kernel = "6.1.0-57-amd64";
  Device& device = facts.devices.emplace_back();
  device.name = "mlx5_0";
  device.driver = "mlx5_core";
  device.limits.windows_2b = true;
  auto& port = device.ports.emplace_back();
  port.state = LinkState::kActive;
  port.layer = LinkLayer::kEthernet;
  port.active_mtu_bytes = port.max_mtu_bytes = 4096;
  port.gids = {
      {3, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, GidType::kRoceV2, "eth7"}};
  facts.device_files = {{"/dev/infiniband/rdma_cm", true}, {"/dev/infiniband/uverbs0", true}};
  facts.huge_page_bytes = 2 << 20;
  facts.huge_pages_total = 100;
  return facts;
}

std::vector<Finding> Of(HostFacts facts, bool require_rdma = false) {
  facts.choice = *ChoosePorts(facts.devices, {});
  return Diagnose(facts, require_rdma);
}

TEST(DiagnosisTest, FindsNothingOnAGoodHost) {
  EXPECT_TRUE(Of(GoodHost()).empty());
  EXPECT_TRUE(Of(GoodHost(), true).empty());
}

TEST(DiagnosisTest, AHostWithoutRdmaIsWellUnlessItIsRequired) {
  HostFacts facts;
  facts.huge_pages_total = 1;
  const std::vector<Finding> findings = Of(facts);
  EXPECT_THAT(findings, Contains(Is(Severity::kNote, "devices", "no RDMA device")));
  EXPECT_FALSE(HasErrors(findings));
  EXPECT_TRUE(HasErrors(Of(facts, true)));
  facts.libraries = absl::UnavailableError("no RDMA: libibverbs.so.1: cannot open");
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kNote, "libraries", "cannot open", "apt-get")));
  EXPECT_TRUE(HasErrors(Of(facts, true)));
}

TEST(DiagnosisTest, AnAdapterWithoutItsDriverOrLibrariesIsAnError) {
  HostFacts facts;
  facts.idle_adapters = {"0000:3b:00.0"};
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "0000:3b:00.0", "driver", "modprobe")));
  facts.libraries = absl::UnavailableError("no RDMA");
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "libraries", "no RDMA")));
}

TEST(DiagnosisTest, TheOnlyPortsTroubleIsAnErrorAnothersAWarning) {
  HostFacts facts = GoodHost();
  facts.devices[0].ports[0].state = LinkState::kDown;
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "mlx5_0:1", "link down", "eth7")));
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "ports", "no port can be used")));
  facts.devices.push_back(GoodHost().devices[0]);
  facts.devices[1].name = "mlx5_1";
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kWarning, "mlx5_0:1", "link down")));
  EXPECT_FALSE(HasErrors(Of(facts)));
}

TEST(DiagnosisTest, ALowLimitOfLockedMemoryIsAnErrorAHighOneAWarning) {
  HostFacts facts = GoodHost();
  facts.locked_memory.limit_bytes = 8 << 20;
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "locked memory", "8MiB", "LimitMEMLOCK")));
  facts.locked_memory.limit_bytes = uint64_t{1} << 30;
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kWarning, "locked memory", "1GiB")));
  facts.devices.clear();  // Without RDMA nothing is to be locked.
  EXPECT_THAT(Of(facts), Not(Contains(Field(&Finding::about, "locked memory"))));
}

TEST(DiagnosisTest, ASmallMtuIsAWarning) {
  HostFacts facts = GoodHost();
  facts.devices[0].ports[0].active_mtu_bytes = 1024;
  EXPECT_THAT(Of(facts),
              Contains(Is(Severity::kWarning, "mlx5_0:1", "1024 of 4096", "eth7 mtu 9000")));
}

TEST(DiagnosisTest, FilesThatMayNotBeOpenedAreErrors) {
  HostFacts facts = GoodHost();
  facts.device_files[1].ours = false;
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kError, "uverbs0", "may not open", "udev")));
  facts.device_files.clear();
  EXPECT_THAT(Of(facts),
              Contains(Is(Severity::kError, "rdma_cm", "not there", "modprobe rdma_ucm")));
}

TEST(DiagnosisTest, DeviceMemoryNeedsAModuleOrAKernel) {
  HostFacts facts = GoodHost();
  facts.modules = {"nvidia"};
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kNote, "device memory", "dmabuf")));
  facts.kernel = "5.11.22";
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kWarning, "device memory", "5.12", "peermem")));
  facts.modules.emplace_back("nvidia_peermem");
  EXPECT_THAT(Of(facts), Contains(Is(Severity::kNote, "device memory", "is loaded")));
}

TEST(DiagnosisTest, ErrorsComeFirst) {
  HostFacts facts = GoodHost();
  facts.devices[0].driver = "rdma_rxe";
  facts.devices[0].ports[0].active_mtu_bytes = 1024;
  facts.locked_memory.limit_bytes = 1 << 20;
  const std::vector<Finding> findings = Of(facts);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
  EXPECT_EQ(findings[2].severity, Severity::kNote);
}

TEST(DoctorTextTest, TellsFactsFindingsAndFixes) {
  HostFacts facts = GoodHost();
  facts.errors = {{"mlx5_0:1", {{"link_downed", 3}}}};
  facts.choice = *ChoosePorts(facts.devices, {});
  const std::string text = DoctorText(facts, Diagnose(facts, false));
  EXPECT_THAT(text, AllOf(HasSubstr("mlx5_0:1"), HasSubstr("10.0.0.1"), HasSubstr("unlimited"),
                          HasSubstr("link_downed 3"), HasSubstr("nothing is wrong")));
}

TEST(KernelVersionTest, ReadsTheFirstTwoNumbers) {
  EXPECT_EQ(KernelVersion("6.1.0-57-amd64"), std::pair(6, 1));
  EXPECT_EQ(KernelVersion("5.12-rc1"), std::pair(5, 12));
  EXPECT_EQ(KernelVersion("linux"), std::pair(0, 0));
}

}  // namespace
}  // namespace cistern::ctl
