// cisternctl doctor on the host that runs this: with RDMA devices, or without.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/app.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using transport::rdma::ChosenPort;

struct Answer {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Answer Doctor(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"cisternctl", "doctor"});
  std::ostringstream out, err;
  const int code = ctl::RunApp(static_cast<int>(arguments.size()), arguments.data(), out, err);
  return {code, out.str(), err.str()};
}

nlohmann::json DoctorJson(std::vector<const char*> arguments, int exit_code) {
  arguments.insert(arguments.begin(), {"-o", "json"});
  const Answer answer = Doctor(std::move(arguments));
  EXPECT_EQ(answer.exit_code, exit_code) << answer.out << answer.err;
  return nlohmann::json::parse(answer.out);
}

// What is said of `about`; empty of nothing.
nlohmann::json FindingOf(const nlohmann::json& report, const std::string& about) {
  for (const auto& finding : report["findings"]) {
    if (finding["about"] == about) return finding;
  }
  return {};
}

const nlohmann::json* PortOf(const nlohmann::json& report, const std::string& name) {
  for (const auto& device : report["devices"]) {
    for (const auto& port : device["ports"]) {
      if (port["name"] == name) return &port;
    }
  }
  return nullptr;
}

TEST(DoctorTest, AHostWithoutRdmaIsWellUnlessItIsRequired) {
  std::string why;
  if (!transport::rdma::TestPorts(&why).empty()) GTEST_SKIP() << "skipped: this host has RDMA";
  const auto devices = transport::rdma::ListDevices();
  if (devices.ok() && !devices->empty()) GTEST_SKIP() << "skipped: this host has RDMA devices";
  const nlohmann::json report = DoctorJson({}, 0);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["devices"].size(), 0u);
  EXPECT_EQ(DoctorJson({"--require-rdma"}, 1)["ok"], false);
  EXPECT_THAT(Doctor({}).out, HasSubstr("nothing is wrong"));
}

TEST(DoctorTest, DescribesThePortsInUse) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  const nlohmann::json report = DoctorJson({"--require-rdma"}, 0);
  for (const ChosenPort& port : ports) {
    const nlohmann::json* found = PortOf(report, port.name());
    ASSERT_NE(found, nullptr) << port.name();
    EXPECT_EQ((*found)["used"], true);
    EXPECT_EQ((*found)["state"], "active");
    EXPECT_EQ((*found)["address"], port.address);
    EXPECT_EQ((*found)["gid_index"], port.gid.index);
    EXPECT_FALSE((*found)["gids"].empty());
  }
  EXPECT_THAT(Doctor({}).out, HasSubstr(ports[0].name()));
}

TEST(DoctorTest, ADeviceThatIsNotThereIsAWrongArgument) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  const Answer answer = Doctor({"--devices", "no_such_device"});
  EXPECT_EQ(answer.exit_code, 2);
  EXPECT_THAT(answer.err, HasSubstr("no_such_device"));
}

TEST(DoctorTest, ALinkThatIsDownIsFoundWithItsInterface) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (!transport::rdma::InRdmaVm()) GTEST_SKIP() << "skipped: takes links down: only in the VM";
  ASSERT_EQ(std::system("ip link set veth1 down"), 0);
  Clock& clock = Clock::Real();
  for (const MonoTime end = clock.Mono() + absl::Seconds(20); clock.Mono() < end;) {
    std::string why;
    if (transport::rdma::TestPorts(&why).size() < ports.size()) break;
    clock.SleepFor(absl::Milliseconds(10));
  }
  // Others can be used: a warning. With the two ends as the only choice: an error.
  nlohmann::json finding = FindingOf(DoctorJson({}, 0), "rxe1:1");
  EXPECT_EQ(finding["severity"], "warning");
  const nlohmann::json alone = DoctorJson({"--devices", "rxe1"}, 1);
  finding = FindingOf(alone, "rxe1:1");
  EXPECT_EQ(finding["severity"], "error");
  EXPECT_THAT(finding["what"].get<std::string>(), HasSubstr("link down"));
  EXPECT_THAT(finding["fix"].get<std::string>(), HasSubstr("ip link set"));
  EXPECT_EQ((*PortOf(alone, "rxe1:1"))["used"], false);
  ASSERT_EQ(std::system("ip link set veth1 up"), 0);
}

TEST(DoctorTest, ALowLimitOfLockedMemoryIsFoundWithItsFix) {
  std::vector<ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  if (getuid() != 0) GTEST_SKIP() << "skipped: needs root, to become somebody with a limit";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {8 << 20, 8 << 20};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(1);
    const nlohmann::json report = DoctorJson({}, 1);
    const nlohmann::json finding = FindingOf(report, "locked memory");
    if (finding.is_null() || finding["severity"] != "error") _exit(2);
    if (finding["fix"].get<std::string>().find("LimitMEMLOCK") == std::string::npos) _exit(3);
    _exit(report["locked_memory"]["limit_bytes"] == (8 << 20) ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace cistern
