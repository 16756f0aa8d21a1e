#include "transport/rdma/devices.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/rdma/handles.h"
#include "transport/rdma/verbs.h"

namespace cistern::transport::rdma {
namespace {

// The first line of a file of /sys; "" where it cannot be read.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The last part of what the link `path` points to; "" of none.
std::string LinkTarget(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).filename();
}

uint32_t MtuBytes(ibv_mtu mtu) {
  return mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ? 0 : 128u << static_cast<int>(mtu);
}

LinkState StateOf(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return LinkState::kDown;
    case IBV_PORT_INIT:
      return LinkState::kInit;
    case IBV_PORT_ARMED:
      return LinkState::kArmed;
    case IBV_PORT_ACTIVE:
    case IBV_PORT_ACTIVE_DEFER:
      return LinkState::kActive;
    default:
      return LinkState::kUnknown;
  }
}

LinkLayer LayerOf(uint8_t layer) {
  if (layer == IBV_LINK_LAYER_ETHERNET) return LinkLayer::kEthernet;
  // Before RoCE there was nothing to tell apart.
  return LinkLayer::kInfiniband;
}

// Lanes times the rate of one, as the specification encodes both; 0 of a code that we do not know.
double Gigabits(const ibv_port_attr& port) {
  double lanes = 0;
  switch (port.active_width) {
    case 1:
      lanes = 1;
      break;
    case 2:
      lanes = 4;
      break;
    case 4:
      lanes = 8;
      break;
    case 8:
      lanes = 12;
      break;
    case 16:
      lanes = 2;
      break;
  }
  switch (port.active_speed) {
    case 1:
      return lanes * 2.5;
    case 2:
      return lanes * 5;
    case 4:
    case 8:
      return lanes * 10;
    case 16:
      return lanes * 14;
    case 32:
      return lanes * 25;
    case 64:
      return lanes * 50;
    case 128:
      return lanes * 100;
  }
  return 0;
}

GidType TypeOf(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::kRoceV1;
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::kRoceV2;
    default:
      return GidType::kInfiniband;
  }
}

// Of all ports.
std::vector<std::pair<uint8_t, GidEntry>> ReadGids(const Verbs& verbs, ibv_context* context,
                                                   size_t at_most) {
  std::vector<ibv_gid_entry> raw(at_most);
  const ssize_t found = QueryGidTable(verbs, context, raw.data(), raw.size());
  std::vector<std::pair<uint8_t, GidEntry>> gids;
  for (ssize_t i = 0; i < found; ++i) {
    GidEntry entry;
    entry.index = static_cast<int>(raw[i].gid_index);
    std::copy(std::begin(raw[i].gid.raw), std::end(raw[i].gid.raw), entry.gid.begin());
    entry.type = TypeOf(raw[i].gid_type);
    char name[IF_NAMESIZE] = {};
    if (raw[i].ndev_ifindex != 0 && if_indextoname(raw[i].ndev_ifindex, name) != nullptr) {
      entry.net_device = name;
    }
    if (!IsZero(entry.gid)) gids.emplace_back(static_cast<uint8_t>(raw[i].port_num), entry);
  }
  return gids;
}

// The addresses of the network interfaces that run over this InfiniBand port.
std::vector<std::string> IpoibAddresses(const std::string& device, uint8_t port) {
  std::vector<std::string> interfaces;
  std::error_code error;
  const std::string folder = absl::StrCat("/sys/class/infiniband/", device, "/device/net");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    uint32_t of_port = 0;
    if (absl::SimpleAtoi(ReadLine(entry.path() / "dev_port"), &of_port) && of_port + 1 == port) {
      interfaces.push_back(entry.path().filename());
    }
  }
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (interfaces.empty() || getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const auto family = at->ifa_addr == nullptr ? AF_UNSPEC : at->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) ||
        std::find(interfaces.begin(), interfaces.end(), at->ifa_name) == interfaces.end()) {
      continue;
    }
    char text[NI_MAXHOST] = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(at->ifa_addr, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  freeifaddrs(list);
  return addresses;
}

// Those of the GIDs that are IP addresses, each once; link-local ones with their scope.
std::vector<std::string> RoceAddresses(const std::vector<GidEntry>& gids) {
  std::vector<std::string> addresses;
  for (const GidEntry& entry : gids) {
    std::string address = GidText(entry.gid);
    if (IsLinkLocal(entry.gid)) {
      if (entry.net_device.empty()) continue;
      absl::StrAppend(&address, "%", entry.net_device);
    }
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

DeviceLimits LimitsOf(const ibv_device_attr& attributes) {
  DeviceLimits limits;
  limits.max_region_bytes = attributes.max_mr_size;
  limits.max_regions = attributes.max_mr;
  limits.max_windows = attributes.max_mw;
  limits.windows_2b = (attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  limits.max_queue_pairs = attributes.max_qp;
  limits.max_work_requests = attributes.max_qp_wr;
  limits.max_pieces = attributes.max_sge;
  limits.max_shared_queues = attributes.max_srq;
  limits.max_shared_work_requests = attributes.max_srq_wr;
  limits.max_shared_pieces = attributes.max_srq_sge;
  limits.max_completion_queues = attributes.max_cq;
  limits.max_completions = attributes.max_cqe;
  limits.max_reads_in = attributes.max_qp_rd_atom;
  limits.max_reads_out = attributes.max_qp_init_rd_atom;
  return limits;
}

void ReadSysfs(Device* device) {
  const std::string folder = absl::StrCat("/sys/class/infiniband/", device->name);
  device->driver = LinkTarget(folder + "/device/driver");
  // A software device hangs on a network interface, not on a bus.
  std::error_code error;
  if (device->driver.empty() && std::filesystem::exists(folder + "/parent", error)) {
    device->driver = device->name.rfind("siw", 0) == 0 ? "siw" : "rdma_rxe";
  }
  device->firmware = ReadLine(folder + "/fw_ver");
  const std::string bus_name = LinkTarget(folder + "/device");
  if (bus_name.find(':') != std::string::npos) device->pci_address = bus_name;
  if (!absl::SimpleAtoi(ReadLine(folder + "/device/numa_node"), &device->numa_node)) {
    device->numa_node = -1;
  }
}

absl::Status ReadDevice(const Verbs& verbs, ibv_device* raw, Device* device) {
  Context context(verbs.open_device(raw));
  if (context == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("opening the RDMA device ", device->name));
  }
  ibv_device_attr attributes = {};
  int error = verbs.query_device(context.get(), &attributes);
  if (error != 0) return ErrnoStatus(error, "ibv_query_device");
  device->limits = LimitsOf(attributes);

  size_t gid_count = 0;
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr port = {};
    error = QueryPort(verbs, context.get(), static_cast<uint8_t>(number), &port);
    if (error != 0) return ErrnoStatus(error, "ibv_query_port");
    gid_count += std::max(port.gid_tbl_len, 0);
    Port& out = device->ports.emplace_back();
    out.number = static_cast<uint8_t>(number);
    out.state = StateOf(port.state);
    out.layer = LayerOf(port.link_layer);
    out.active_mtu_bytes = MtuBytes(port.active_mtu);
    out.max_mtu_bytes = MtuBytes(port.max_mtu);
    out.gigabits_per_second = Gigabits(port);
    out.lid = port.lid;
  }
  for (auto& [number, entry] : ReadGids(verbs, context.get(), gid_count)) {
    if (number >= 1 && number <= device->ports.size()) {
      device->ports[number - 1].gids.push_back(std::move(entry));
    }
  }
  for (Port& port : device->ports) {
    port.addresses = port.layer == LinkLayer::kEthernet ? RoceAddresses(port.gids)
                                                        : IpoibAddresses(device->name, port.number);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Device>> ListDevices() {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  ibv_device** list = verbs->get_device_list(nullptr);
  // ENOSYS: the kernel has no RDMA at all (its modules are not loaded).
  if (list == nullptr) {
    if (errno == ENOSYS) return std::vector<Device>{};
    return ErrnoStatus(errno, "ibv_get_device_list");
  }
  std::vector<Device> devices;
  for (ibv_device** at = list; *at != nullptr; ++at) {
    Device& device = devices.emplace_back();
    device.name = verbs->get_device_name(*at);
    device.iwarp = (*at)->transport_type == IBV_TRANSPORT_IWARP;
    ReadSysfs(&device);
    device.opened = ReadDevice(*verbs, *at, &device);
    if (!device.opened.ok()) device.ports.clear();
  }
  verbs->free_device_list(list);
  std::sort(devices.begin(), devices.end(),
            [](const Device& a, const Device& b) { return a.name < b.name; });
  return devices;
}

}  // namespace cistern::transport::rdma
