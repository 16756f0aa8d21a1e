// Which ports of which devices the wire uses, by configuration and by what the devices say. Pure.
#ifndef CISTERN_TRANSPORT_RDMA_PORT_CHOICE_H_
#define CISTERN_TRANSPORT_RDMA_PORT_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/rdma/device.h"

namespace cistern::transport::rdma {

struct PortOptions {
  std::string devices = {};  // "mlx5_0, mlx5_1:1"; empty = every device
  int gid_index = -1;        // -1 = chosen (PreferredGid)
  uint32_t mtu_bytes = 0;    // 256 to 4096, a power of two; 0 = the port's
};

// A port to use, and how.
struct ChosenPort {
  std::string device = {};
  uint8_t port = 1;
  GidEntry gid = {};
  // What to bind rdma_cm to, as text; "" on an InfiniBand port without an IPoIB address, which
  // rdma_cm does not reach.
  std::string address = {};
  uint32_t mtu_bytes = 0;
  LinkLayer layer = LinkLayer::kUnknown;
  int numa_node = -1;
  DeviceLimits limits = {};
  std::string name() const;  // "mlx5_0:1"
};

// Why a port is not used.
struct PassedPort {
  std::string name = {};
  std::string why = {};
};

struct PortChoice {
  std::vector<ChosenPort> chosen = {};
  std::vector<PassedPort> passed = {};
};

// InvalidArgument: `options` is badly formed, or names a device or a port that is not there. That
// no port can be used is no error: `passed` says why, port by port.
absl::StatusOr<PortChoice> ChoosePorts(const std::vector<Device>& devices,
                                       const PortOptions& options);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_PORT_CHOICE_H_
