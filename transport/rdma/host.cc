#include "transport/rdma/host.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/rdma/devices.h"
#include "transport/rdma/port_choice.h"

namespace cistern::transport::rdma {
namespace {

// What gathers well: more pieces make longer work requests than some devices like.
constexpr uint32_t kMostPieces = 16;
constexpr uint32_t kMostReads = 16;
// Threads that register one piece of memory, and how often they tell.
constexpr size_t kMostRegistering = 8;
constexpr size_t kToldPieces = 16;

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

uint8_t TimeoutExponent(absl::Duration timeout) {
  uint8_t exponent = 1;
  while (exponent < 31 && absl::Nanoseconds(int64_t{4096} << exponent) < timeout) ++exponent;
  return exponent;
}

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

std::vector<Host::Piece> Host::PiecesOf(void* address, uint64_t bytes) const {
  std::vector<Piece> pieces;
  for (const auto& device : devices_) {
    for (uint64_t at = 0; at < bytes; at += options_.region_bytes) {
      pieces.push_back({device.get(), static_cast<char*>(address) + at,
                        std::min(options_.region_bytes, bytes - at)});
    }
  }
  return pieces;
}

absl::Status Host::AddMemory(void* address, uint64_t bytes, MemoryRights rights) {
  if (bytes == 0) return absl::InvalidArgumentError("rdma: no memory to register");
  std::vector<Piece> pieces = PiecesOf(address, bytes);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&pieces, &next, &failed, rights] {
    for (size_t i = next++; i < pieces.size() && !failed; i = next++) {
      Piece& piece = pieces[i];
      piece.status = piece.device->memory.Register(piece.device->domain.get(), piece.address,
                                                   piece.bytes, rights);
      piece.done = piece.status.ok();
      if (!piece.done) failed = true;
      if (piece.done && (i + 1) % kToldPieces == 0) {
        CISTERN_LOG(Info, "rdma: ", i + 1, " of ", pieces.size(), " regions are registered");
      }
    }
  };
  std::vector<std::thread> helpers;
  // What is small is done before a thread has started.
  const size_t threads =
      bytes > options_.region_bytes ? std::min(pieces.size(), kMostRegistering) : 1;
  for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (!failed) return absl::OkStatus();
  absl::Status why;
  for (const Piece& piece : pieces) {
    if (piece.done) piece.device->memory.Remove(piece.address, piece.bytes);
    if (why.ok() && !piece.status.ok()) why = Annotate(piece.status, piece.device->name);
  }
  return why;
}

void Host::RemoveMemory(void* address, uint64_t bytes) {
  for (const Piece& piece : PiecesOf(address, bytes)) {
    piece.device->memory.Remove(piece.address, piece.bytes);
  }
}

}  // namespace cistern::transport::rdma
