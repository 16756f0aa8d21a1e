#include "tools/ctl/host_facts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "transport/rdma/devices.h"

namespace cistern::ctl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModules[] = {"ib_core",  "ib_uverbs", "rdma_cm", "rdma_ucm",
                                    "ib_ipoib", "mlx5_ib",   "nvidia",  "nvidia_peermem"};
// Counters of trouble; others count traffic.
constexpr const char* kErrorCounters[] = {
    "symbol_error",         "link_error_recovery", "link_downed",
    "port_rcv_errors",      "port_xmit_discards",  "local_link_integrity_errors",
    "out_of_sequence",      "packet_seq_err",      "local_ack_timeout_err",
    "rnr_nak_retry_err",    "roce_adp_retrans",    "np_cnp_sent",
    "rx_icrc_encapsulated", "retry_exceeded_err",  "retry_rnr_exceeded_err",
    "send_rnr_err",         "completer_retry_err"};

std::string ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint64_t ReadNumber(const fs::path& path) {
  uint64_t number = 0;
  return absl::SimpleAtoi(ReadLine(path), &number) ? number : 0;
}

// The entries' paths, sorted; none of a folder that is not there.
std::vector<fs::path> List(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder, error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<std::string> Modules(const std::string& root) {
  std::vector<std::string> present;
  for (const char* name : kModules) {
    if (Exists(absl::StrCat(root, "/sys/module/", name))) present.emplace_back(name);
  }
  return present;
}

// InfiniBand controllers, and network adapters of the maker whose every network adapter has RDMA.
std::vector<std::string> IdleAdapters(const std::string& root) {
  std::vector<std::string> idle;
  for (const fs::path& device : List(root + "/sys/bus/pci/devices")) {
    const std::string device_class = ReadLine(device / "class");
    const bool infiniband = device_class.rfind("0x0207", 0) == 0;
    const bool mellanox =
        ReadLine(device / "vendor") == "0x15b3" && device_class.rfind("0x0200", 0) == 0;
    if ((infiniband || mellanox) && List(device / "infiniband").empty()) {
      idle.push_back(device.filename());
    }
  }
  return idle;
}

std::vector<DeviceFile> DeviceFiles(const std::string& root) {
  std::vector<DeviceFile> files;
  for (const fs::path& path : List(root + "/dev/infiniband")) {
    const std::string name = path.filename();
    if (name.rfind("uverbs", 0) != 0 && name != "rdma_cm") continue;
    files.push_back({"/dev/infiniband/" + name, access(path.c_str(), R_OK | W_OK) == 0});
  }
  return files;
}

std::vector<PortErrors> CountedErrors(const std::string& root) {
  std::vector<PortErrors> all;
  for (const fs::path& device : List(root + "/sys/class/infiniband")) {
    for (const fs::path& port : List(device / "ports")) {
      PortErrors errors;
      errors.port = absl::StrCat(device.filename().string(), ":", port.filename().string());
      for (const char* name : kErrorCounters) {
        const uint64_t count =
            ReadNumber(port / "counters" / name) + ReadNumber(port / "hw_counters" / name);
        if (count != 0) errors.counts.emplace_back(name, count);
      }
      if (!errors.counts.empty()) all.push_back(std::move(errors));
    }
  }
  return all;
}

void ReadHugePages(const std::string& root, HostFacts* facts) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t number = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &number)) continue;
    if (words[0] == "HugePages_Total:") facts->huge_pages_total = number;
    if (words[0] == "HugePages_Free:") facts->huge_pages_free = number;
    if (words[0] == "Hugepagesize:") facts->huge_page_bytes = number * 1024;
  }
}

}  // namespace

absl::StatusOr<HostFacts> GatherHostFacts(const transport::rdma::PortOptions& options,
                                          const std::string& root) {
  HostFacts facts;
  facts.kernel = ReadLine(root + "/proc/sys/kernel/osrelease");
  absl::StatusOr<std::vector<transport::rdma::Device>> devices = transport::rdma::ListDevices();
  facts.libraries = devices.status();
  if (devices.ok()) {
    facts.devices = *std::move(devices);
    CISTERN_ASSIGN_OR_RETURN(facts.choice, transport::rdma::ChoosePorts(facts.devices, options));
  }
  facts.errors = CountedErrors(root);
  facts.modules = Modules(root);
  facts.idle_adapters = IdleAdapters(root);
  facts.device_files = DeviceFiles(root);
  facts.locked_memory = transport::rdma::ReadLockedMemory();
  ReadHugePages(root, &facts);
  return facts;
}

std::pair<int, int> KernelVersion(const std::string& release) {
  const std::vector<std::string> parts = absl::StrSplit(release, absl::ByAnyChar(".-+"));
  int major = 0, minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1], &minor)) {
    return {0, 0};
  }
  return {major, minor};
}

}  // namespace cistern::ctl
