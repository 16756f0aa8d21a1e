// What an RDMA device and its ports are: plain values, for the wire and for people.
#ifndef CISTERN_TRANSPORT_RDMA_DEVICE_H_
#define CISTERN_TRANSPORT_RDMA_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "transport/rdma/gid.h"

namespace cistern::transport::rdma {

enum class LinkLayer { kUnknown, kInfiniband, kEthernet };
enum class LinkState { kUnknown, kDown, kInit, kArmed, kActive };

std::string LinkLayerName(LinkLayer layer);  // "InfiniBand", "Ethernet (RoCE)", "unknown"
std::string LinkStateName(LinkState state);  // "active", "down", ...

struct Port {
  uint8_t number = 1;  // from 1
  LinkState state = LinkState::kUnknown;
  LinkLayer layer = LinkLayer::kUnknown;
  uint32_t active_mtu_bytes = 0;
  uint32_t max_mtu_bytes = 0;
  double gigabits_per_second = 0;  // 0 = not told
  uint16_t lid = 0;                // InfiniBand: given by the subnet manager; 0 = none yet
  std::vector<GidEntry> gids = {};
  // Addresses, as text, that rdma_cm reaches this port by: of the GIDs on Ethernet, of the IPoIB
  // interfaces on InfiniBand.
  std::vector<std::string> addresses = {};
};

struct DeviceLimits {
  uint64_t max_region_bytes = 0;
  uint32_t max_regions = 0;
  uint32_t max_windows = 0;
  bool windows_2b = false;  // memory windows of type 2B: bound to one queue pair
  uint32_t max_queue_pairs = 0;
  uint32_t max_work_requests = 0;  // of a queue pair
  uint32_t max_pieces = 0;         // scatter/gather entries of a work request
  uint32_t max_shared_queues = 0;
  uint32_t max_shared_work_requests = 0;
  uint32_t max_shared_pieces = 0;
  uint32_t max_completion_queues = 0;
  uint32_t max_completions = 0;  // entries of a completion queue
  uint32_t max_reads_in = 0;     // RDMA READs that a peer may have outstanding with us
  uint32_t max_reads_out = 0;    // and we with a peer
};

struct Device {
  std::string name = {};         // "mlx5_0"
  std::string driver = {};       // the kernel's: "mlx5_core"; "rdma_rxe" of the software device
  std::string firmware = {};     // "" of none
  std::string pci_address = {};  // "0000:3b:00.0"; "" of none
  int numa_node = -1;            // -1 = the system does not say
  bool iwarp = false;            // no RoCE and no InfiniBand: not supported by us
  absl::Status opened = {};      // why it could not be asked; then what follows is empty
  DeviceLimits limits = {};
  std::vector<Port> ports = {};
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_DEVICE_H_
