// What this host has to offer to a pool's data wires, as `cisternctl doctor` finds it. Facts only;
// what they mean is diagnosis.h's.
#ifndef CISTERN_TOOLS_CTL_HOST_FACTS_H_
#define CISTERN_TOOLS_CTL_HOST_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/rdma/device.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/port_choice.h"

namespace cistern::ctl {

// Errors that a port has counted since its driver was loaded, by the kernel's names; zeros left
// out.
struct PortErrors {
  std::string port;  // "mlx5_0:1"
  std::vector<std::pair<std::string, uint64_t>> counts;
};

struct DeviceFile {
  std::string path;   // "/dev/infiniband/uverbs0"
  bool ours = false;  // we may read and write it
};

struct HostFacts {
  std::string kernel = {};      // "6.1.0-57-amd64"
  absl::Status libraries = {};  // whether libibverbs and librdmacm can be loaded
  std::vector<transport::rdma::Device> devices = {};
  transport::rdma::PortChoice choice = {};  // of those, by the configuration
  std::vector<PortErrors> errors = {};
  std::vector<std::string> modules = {};        // of those that matter, the loaded or built-in ones
  std::vector<std::string> idle_adapters = {};  // PCI addresses of RDMA adapters without a device
  std::vector<DeviceFile> device_files = {};
  transport::rdma::LockedMemory locked_memory = {};
  uint64_t huge_page_bytes = 0;
  uint64_t huge_pages_total = 0;
  uint64_t huge_pages_free = 0;
};

// Asks the system. InvalidArgument: `options` name what is not there. `root` stands before /sys,
// /proc and /dev, for tests.
absl::StatusOr<HostFacts> GatherHostFacts(const transport::rdma::PortOptions& options,
                                          const std::string& root = "");

// Of "6.1.0-57-amd64": {6, 1}; {0, 0} of what is no version.
std::pair<int, int> KernelVersion(const std::string& release);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_HOST_FACTS_H_
