#include "transport/rdma/host.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/rdma/devices.h"
#include "transport/rdma/port_choice.h"

namespace cistern::transport::rdma {
namespace {

// What gathers well: more pieces make longer work requests than some devices like.
constexpr uint32_t kMostPieces = 16;
constexpr uint32_t kMostReads = 16;

// The connection manager has its devices open; queue pairs, memory and its ids have to be of one
// and the same opening. Never given back: it may hand them out as long as the process lives.
absl::StatusOr<ibv_context**> ManagedDevices(const Verbs& verbs, int* count) {
  static int kept_count = 0;
  static ibv_context** const kept = verbs.cm.get_devices(&kept_count);
  *count = kept_count;
  if (kept == nullptr) return absl::UnavailableError("no RDMA device that rdma_cm knows");
  return kept;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Host>> Host::Open(const HostOptions& options) {
  CISTERN_ASSIGN_OR_RETURN(const Verbs* verbs, LoadVerbs());
  CISTERN_ASSIGN_OR_RETURN(const std::vector<Device> devices, ListDevices());
  PortOptions ports;
  ports.devices = options.devices;
  ports.gid_index = options.gid_index;
  ports.mtu_bytes = options.mtu_bytes;
  CISTERN_ASSIGN_OR_RETURN(const PortChoice choice, ChoosePorts(devices, ports));
  if (choice.chosen.empty()) {
    std::string why = "no RDMA device to use";
    for (const PassedPort& port : choice.passed)
      absl::StrAppend(&why, "; ", port.name, ": ", port.why);
    return absl::UnavailableError(why);
  }
  int count = 0;
  CISTERN_ASSIGN_OR_RETURN(ibv_context * * const contexts, ManagedDevices(*verbs, &count));
  std::shared_ptr<Host> host(new Host(options));
  for (const ChosenPort& port : choice.chosen) {
    for (int i = 0; i < count; ++i) {
      if (port.device != verbs->get_device_name(contexts[i]->device)) continue;
      HostDevice* device = host->Find(contexts[i]);
      if (device == nullptr) {
        host->devices_.push_back(std::make_unique<HostDevice>());
        device = host->devices_.back().get();
        device->name = port.device;
        device->context = contexts[i];
        CISTERN_ASSIGN_OR_RETURN(device->domain, AllocateProtectionDomain(contexts[i]));
        device->max_pieces = std::clamp(port.limits.max_pieces, 1u, kMostPieces);
        device->max_reads = std::clamp(
            std::min(port.limits.max_reads_in, port.limits.max_reads_out), 1u, kMostReads);
        device->max_completions = port.limits.max_completions;
      }
      if (!port.address.empty()) device->addresses.push_back(port.address);
    }
  }
  if (host->devices_.empty()) {
    return absl::UnavailableError("rdma_cm knows none of the RDMA devices to use");
  }
  return host;
}

HostDevice* Host::Find(const ibv_context* context) const {
  for (const auto& device : devices_) {
    if (device->context == context) return device.get();
  }
  return nullptr;
}

std::vector<std::string> Host::Addresses() const {
  std::vector<std::string> all;
  for (const auto& device : devices_) {
    all.insert(all.end(), device->addresses.begin(), device->addresses.end());
  }
  return all;
}

absl::Status Host::AddMemory(void* address, uint64_t bytes, MemoryRights rights) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    HostDevice& device = *devices_[i];
    absl::Status status = device.memory.Register(device.domain.get(), address, bytes, rights);
    if (status.ok()) continue;
    for (size_t done = 0; done < i; ++done) devices_[done]->memory.Remove(address);
    return Annotate(status, device.name);
  }
  return absl::OkStatus();
}

void Host::RemoveMemory(const void* address) {
  for (const auto& device : devices_) device->memory.Remove(address);
}

}  // namespace cistern::transport::rdma
