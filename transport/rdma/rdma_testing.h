// For tests that need an RDMA device.
#ifndef CISTERN_TRANSPORT_RDMA_RDMA_TESTING_H_
#define CISTERN_TRANSPORT_RDMA_RDMA_TESTING_H_

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "transport/rdma/devices.h"
#include "transport/rdma/port_choice.h"

namespace cistern::transport::rdma {

// The ports that the wire would use; empty with `why` set where there is none.
inline std::vector<ChosenPort> TestPorts(std::string* why) {
  const absl::StatusOr<std::vector<Device>> devices = ListDevices();
  if (!devices.ok()) {
    *why = std::string(devices.status().message());
    return {};
  }
  const PortChoice choice = *ChoosePorts(*devices, {});
  if (choice.chosen.empty()) *why = "the host has no RDMA device";
  for (const PassedPort& port : choice.passed) *why += "; " + port.name + ": " + port.why;
  return choice.chosen;
}

// Whether this runs in the machine of tools/rdma-vm, where devices must be found.
inline bool InRdmaVm() {
  return std::getenv("RDMA_VM") != nullptr;  // lint: allow(getenv): a test is told its place
}

}  // namespace cistern::transport::rdma

// Ends the test as skipped where there is no port to use; as failed where there must be one.
// `ports`: a std::vector<ChosenPort> to fill.
#define CISTERN_TEST_PORTS_OR_SKIP(ports)                                \
  std::string why_no_rdma;                                               \
  ports = ::cistern::transport::rdma::TestPorts(&why_no_rdma);           \
  if (ports.empty() && ::cistern::transport::rdma::InRdmaVm()) {         \
    FAIL() << "no RDMA device where there must be one: " << why_no_rdma; \
  }                                                                      \
  if (ports.empty()) GTEST_SKIP() << "skipped: no RDMA device: " << why_no_rdma

#endif  // CISTERN_TRANSPORT_RDMA_RDMA_TESTING_H_
