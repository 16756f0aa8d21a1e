#include "transport/rdma/port_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

std::string NameOf(const std::string& device, uint8_t port) {
  return absl::StrCat(device, ":", static_cast<int>(port));
}

// One word of `devices`: a device, or one port of it.
struct Wanted {
  std::string device;
  int port = 0;  // 0 = any
};

absl::StatusOr<std::vector<Wanted>> ParseDevices(const std::string& text) {
  std::vector<Wanted> wanted;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    if (word.empty()) continue;
    const std::vector<std::string> parts = absl::StrSplit(word, ':');
    Wanted& one = wanted.emplace_back();
    one.device = parts[0];
    if (parts.size() > 2 || parts[0].empty() ||
        (parts.size() == 2 &&
         (!absl::SimpleAtoi(parts[1], &one.port) || one.port < 1 || one.port > 255))) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is no RDMA device: write \"mlx5_0\" or \"mlx5_0:1\""));
    }
  }
  return wanted;
}

// InvalidArgument unless each is there.
absl::Status CheckPresent(const std::vector<Wanted>& wanted, const std::vector<Device>& devices) {
  for (const Wanted& one : wanted) {
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const Device& d) { return d.name == one.device; });
    if (found == devices.end()) {
      const auto name = [](std::string* out, const Device& d) { absl::StrAppend(out, d.name); };
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no RDMA device \"", one.device, "\" here; there ",
          devices.empty() ? "is none at all"
                          : absl::StrCat("are: ", absl::StrJoin(devices, ", ", name))));
    }
    if (found->opened.ok() && one.port > static_cast<int>(found->ports.size())) {
      return absl::InvalidArgumentError(absl::StrCat("the RDMA device ", one.device, " has ",
                                                     found->ports.size(), " port(s), not ",
                                                     one.port));
    }
  }
  return absl::OkStatus();
}

bool IsWanted(const std::vector<Wanted>& wanted, const std::string& device, uint8_t port) {
  return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const Wanted& one) {
           return one.device == device && (one.port == 0 || one.port == port);
         });
}

// What is wrong with the port by itself; "" = nothing.
std::string WhyNot(const Device& device, const Port& port) {
  if (device.iwarp) return "iWARP, which is not supported";
  if (port.state != LinkState::kActive) return absl::StrCat("link ", LinkStateName(port.state));
  if (port.layer == LinkLayer::kInfiniband && port.lid == 0) {
    return "no local id: no subnet manager has seen the port";
  }
  if (port.gids.empty()) {
    return port.layer == LinkLayer::kEthernet
               ? "no GID: its network interface has no address, or is down"
               : "no GID";
  }
  return "";
}

// The entry to use; null with `why` set.
const GidEntry* ChooseGid(const Port& port, int index, std::string* why) {
  if (index < 0) return PreferredGid(port.gids);
  for (const GidEntry& entry : port.gids) {
    if (entry.index == index) return &entry;
  }
  *why = absl::StrCat("no GID with index ", index, " (gid_index)");
  return nullptr;
}

std::string AddressOf(const Port& port, const GidEntry& gid) {
  if (port.layer != LinkLayer::kEthernet) return port.addresses.empty() ? "" : port.addresses[0];
  std::string address = GidText(gid.gid);
  if (IsLinkLocal(gid.gid)) absl::StrAppend(&address, "%", gid.net_device);
  return address;
}

void Judge(const Device& device, const Port& port, const PortOptions& options, PortChoice* out) {
  std::string why = WhyNot(device, port);
  const GidEntry* gid = why.empty() ? ChooseGid(port, options.gid_index, &why) : nullptr;
  if (gid != nullptr && AddressOf(port, *gid).empty()) {
    why = "no address to connect by: configure IP over InfiniBand on it";
    gid = nullptr;
  }
  if (gid == nullptr) {
    out->passed.push_back({NameOf(device.name, port.number), std::move(why)});
    return;
  }
  ChosenPort& chosen = out->chosen.emplace_back();
  chosen.device = device.name;
  chosen.port = port.number;
  chosen.gid = *gid;
  chosen.address = AddressOf(port, *gid);
  // Beyond the port's own there would be no packet through.
  chosen.mtu_bytes = options.mtu_bytes == 0 ? port.active_mtu_bytes
                                            : std::min(options.mtu_bytes, port.active_mtu_bytes);
  chosen.layer = port.layer;
  chosen.numa_node = device.numa_node;
  chosen.limits = device.limits;
}

absl::Status CheckOptions(const PortOptions& options) {
  const uint32_t mtu = options.mtu_bytes;
  if (mtu != 0 && (mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)) != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(mtu, " is no MTU: 256, 512, 1024, 2048 or 4096"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ChosenPort::name() const { return NameOf(device, port); }

absl::StatusOr<PortChoice> ChoosePorts(const std::vector<Device>& devices,
                                       const PortOptions& options) {
  CISTERN_RETURN_IF_ERROR(CheckOptions(options));
  CISTERN_ASSIGN_OR_RETURN(const std::vector<Wanted> wanted, ParseDevices(options.devices));
  CISTERN_RETURN_IF_ERROR(CheckPresent(wanted, devices));
  PortChoice choice;
  for (const Device& device : devices) {
    if (!device.opened.ok()) {
      choice.passed.push_back({device.name, std::string(device.opened.message())});
    }
    for (const Port& port : device.ports) {
      if (IsWanted(wanted, device.name, port.number)) {
        Judge(device, port, options, &choice);
      } else {
        choice.passed.push_back({NameOf(device.name, port.number), "not among the configured"});
      }
    }
  }
  return choice;
}

}  // namespace cistern::transport::rdma
