#include "tools/ctl/diagnosis.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/config.h"

namespace cistern::ctl {
namespace {

using transport::rdma::Device;
using transport::rdma::GidEntry;
using transport::rdma::GidType;
using transport::rdma::LinkLayer;
using transport::rdma::LinkState;
using transport::rdma::PassedPort;
using transport::rdma::Port;

// Below this nothing of a pool's size can be registered: the distribution's default is 8 MiB.
constexpr uint64_t kLeastLockedBytes = uint64_t{1} << 30;

bool Loaded(const HostFacts& facts, const std::string& module) {
  return std::find(facts.modules.begin(), facts.modules.end(), module) != facts.modules.end();
}

// Collects findings about one host.
class Diagnosis {
 public:
  Diagnosis(const HostFacts& facts, bool require_rdma)
      : facts_(facts), require_rdma_(require_rdma) {}

  std::vector<Finding> Run() {
    Presence();
    Files();
    Passed();
    for (const Device& device : facts_.devices) OneDevice(device);
    if (!facts_.devices.empty()) LockedMemory();
    Counters();
    DeviceMemory();
    HugePages();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
    return std::move(findings_);
  }

 private:
  void Add(Severity severity, std::string about, std::string what, std::string fix = "") {
    findings_.push_back({severity, std::move(about), std::move(what), std::move(fix)});
  }

  // Is there any RDMA, and was it meant to be?
  void Presence() {
    const bool meant =
        require_rdma_ || !facts_.idle_adapters.empty() || !facts_.device_files.empty();
    if (!facts_.libraries.ok()) {
      Add(meant ? Severity::kError : Severity::kNote, "libraries",
          std::string(facts_.libraries.message()),
          "apt-get install libibverbs1 librdmacm1 ibverbs-providers");
    } else if (facts_.devices.empty() && facts_.idle_adapters.empty()) {
      Add(require_rdma_ ? Severity::kError : Severity::kNote, "devices",
          "this host has no RDMA device: tcp and shared memory serve it",
          require_rdma_ ? "check the adapter (lspci), or make a software device (rdma link add)"
                        : "");
    } else if (facts_.choice.chosen.empty() && facts_.idle_adapters.empty()) {
      Add(Severity::kError, "ports", "no port can be used: see below for each");
    }
    for (const std::string& address : facts_.idle_adapters) {
      Add(Severity::kError, address,
          "an RDMA adapter without an RDMA device: its driver is missing",
          "modprobe mlx5_ib, or the driver of its maker; see dmesg");
    }
  }

  // What a program opens; an engine or a store runs as a user of its own.
  void Files() {
    for (const DeviceFile& file : facts_.device_files) {
      if (file.ours) continue;
      Add(Severity::kError, file.path, "this user may not open it",
          "make it readable and writable for the user of the store or engine (a udev rule, or the "
          "group rdma)");
    }
    const auto is_cm = [](const DeviceFile& file) { return absl::EndsWith(file.path, "/rdma_cm"); };
    if (!facts_.devices.empty() &&
        std::none_of(facts_.device_files.begin(), facts_.device_files.end(), is_cm)) {
      Add(Severity::kError, "/dev/infiniband/rdma_cm",
          "it is not there: connections cannot be made",
          "modprobe rdma_ucm (in a container: pass the folder /dev/infiniband in)");
    }
  }

  void Passed() {
    const bool others = !facts_.choice.chosen.empty();
    for (const PassedPort& port : facts_.choice.passed) {
      if (absl::StartsWith(port.why, "not among")) {
        Add(Severity::kNote, port.name, "not used: " + port.why);
        continue;
      }
      Add(others ? Severity::kWarning : Severity::kError, port.name, "not used: " + port.why,
          FixOf(port));
    }
  }

  // The network interface of the port, as a word for a command.
  std::string InterfaceOf(const std::string& port_name) const {
    for (const Device& device : facts_.devices) {
      for (const Port& port : device.ports) {
        if (absl::StrCat(device.name, ":", static_cast<int>(port.number)) != port_name) continue;
        for (const GidEntry& gid : port.gids) {
          if (!gid.net_device.empty()) return gid.net_device;
        }
      }
    }
    return "INTERFACE";
  }

  std::string FixOf(const PassedPort& port) const {
    if (absl::StartsWith(port.why, "link")) {
      return absl::StrCat("check the cable and the switch's port; ip link set ",
                          InterfaceOf(port.name), " up (\"rdma link\" names the interface)");
    }
    if (absl::StrContains(port.why, "subnet manager")) {
      return "start a subnet manager (opensm) on the fabric";
    }
    if (absl::StrContains(port.why, "gid_index")) {
      return "leave gid_index out, or take one that is listed";
    }
    if (absl::StrContains(port.why, "IP over InfiniBand")) {
      return "modprobe ib_ipoib, and give its interface an address";
    }
    if (absl::StrContains(port.why, "no GID")) {
      return "ip address add ADDRESS/LENGTH dev INTERFACE (\"rdma link\" names the interface)";
    }
    if (absl::StrContains(port.why, "iWARP")) return "";
    return "see dmesg";
  }

  void OneDevice(const Device& device) {
    if (device.driver == "rdma_rxe") {
      Add(Severity::kNote, device.name, "a software device: good for tests, slower than tcp");
    }
    if (device.opened.ok() && !device.iwarp && !device.limits.windows_2b) {
      Add(Severity::kNote, device.name,
          "no memory windows of type 2B: the store fetches what is put (put = pull)");
    }
    for (const Port& port : device.ports) {
      if (port.state == LinkState::kActive && port.layer == LinkLayer::kEthernet) {
        OneRocePort(absl::StrCat(device.name, ":", static_cast<int>(port.number)), port);
      }
    }
  }

  void OneRocePort(const std::string& name, const Port& port) {
    if (port.active_mtu_bytes < port.max_mtu_bytes) {
      Add(Severity::kWarning, name,
          absl::StrCat("path MTU ", port.active_mtu_bytes, " of ", port.max_mtu_bytes,
                       " bytes: more packets than need be"),
          absl::StrCat("ip link set ", InterfaceOf(name),
                       " mtu 9000, and the same on every switch and peer"));
    }
    const auto v2 = [](const GidEntry& gid) { return gid.type == GidType::kRoceV2; };
    if (!port.gids.empty() && std::none_of(port.gids.begin(), port.gids.end(), v2)) {
      Add(Severity::kWarning, name, "RoCE v1 only: its packets cross no router",
          "switch the adapter to RoCE v2 (cma_roce_mode)");
    }
  }

  void LockedMemory() {
    const auto& limit = facts_.locked_memory.limit_bytes;
    if (!limit) return;
    const bool low = *limit < kLeastLockedBytes;
    Add(low ? Severity::kError : Severity::kWarning, "locked memory",
        absl::StrCat("a process of this user may lock ", FormatSize(*limit),
                     low ? ": too little to register buffers or segments"
                         : ": registering more than that will fail"),
        "\"ulimit -l unlimited\" in the shell (limits.conf: memlock), LimitMEMLOCK=infinity in the "
        "systemd unit, --ulimit memlock=-1 for a container");
  }

  // The kernel keeps counts, no times.
  void Counters() {
    for (const PortErrors& port : facts_.errors) {
      const auto one = [](std::string* out, const std::pair<std::string, uint64_t>& count) {
        absl::StrAppend(out, count.first, " ", count.second);
      };
      Add(Severity::kNote, port.port,
          absl::StrCat("errors since its driver was loaded: ",
                       absl::StrJoin(port.counts, ", ", one)),
          "look again in a minute: only what still grows is trouble");
    }
  }

  void DeviceMemory() {
    if (!Loaded(facts_, "nvidia") || facts_.devices.empty()) return;
    const bool dmabuf = KernelVersion(facts_.kernel) >= std::pair(5, 12);
    if (Loaded(facts_, "nvidia_peermem")) {
      Add(Severity::kNote, "device memory", "nvidia_peermem is loaded");
    } else if (dmabuf) {
      Add(Severity::kNote, "device memory",
          "nvidia_peermem is not loaded; this kernel can register device memory by dmabuf");
    } else {
      Add(Severity::kWarning, "device memory",
          "neither nvidia_peermem nor a kernel with dmabuf registration (5.12): device memory "
          "cannot "
          "be registered",
          "modprobe nvidia_peermem");
    }
  }

  void HugePages() {
    if (facts_.huge_pages_total != 0) return;
    Add(Severity::kNote, "huge pages", "none are reserved: stores use small ones",
        absl::StrCat("to use them: sysctl vm.nr_hugepages=N (of ",
                     FormatSize(facts_.huge_page_bytes), "), and huge_pages = \"try\""));
  }

  const HostFacts& facts_;
  const bool require_rdma_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "?";
}

std::vector<Finding> Diagnose(const HostFacts& facts, bool require_rdma) {
  return Diagnosis(facts, require_rdma).Run();
}

bool HasErrors(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kError; });
}

}  // namespace cistern::ctl
