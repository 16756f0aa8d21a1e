// The RDMA devices that this process uses, opened once, and its memory on them.
#ifndef CISTERN_TRANSPORT_RDMA_HOST_H_
#define CISTERN_TRANSPORT_RDMA_HOST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "transport/rdma/handles.h"
#include "transport/rdma/memory.h"

namespace cistern::transport::rdma {

struct HostOptions {
  std::string devices = {};  // as PortOptions::devices; empty = every one that is up
  int gid_index = -1;
  uint32_t mtu_bytes = 0;
  uint32_t traffic_class = 0;       // of RoCE's packets
  uint32_t service_level = 0;       // of InfiniBand; on RoCE the VLAN priority
  uint32_t queue_depth = 128;       // work requests of a queue pair: 16 to 8,192
  uint32_t max_inline_bytes = 128;  // messages to this size go with their work request
  uint32_t retry_count = 6;         // 7 is for ever on the kernel's software device
  uint8_t timeout_exponent = 14;    // 4.096 us * 2^n between repeats
  // Memory is registered in regions of at most so many bytes, several at once: a system locks a few
  // GiB a second in one thread.
  uint64_t region_bytes = uint64_t{1} << 30;
};
// The smallest exponent whose wait is at least `timeout`; 1 to 31.
uint8_t TimeoutExponent(absl::Duration timeout);

// Why work requests failed, by kind, and how many were posted. Relaxed: for people and tests.
struct HostCounters {
  static constexpr size_t kStatuses = 24;  // ibv_wc_status
  std::atomic<uint64_t> failed[kStatuses] = {};
  std::atomic<uint64_t> sends{0};
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> completions{0};
  std::atomic<uint64_t> doorbells{0};
};

// A device in use. Thread-safe.
struct HostDevice {
  std::string name = {};
  ibv_context* context = nullptr;  // the connection manager's, open as long as the process
  ProtectionDomain domain;
  DeviceMemory memory;
  std::vector<std::string> addresses = {};
  uint32_t max_pieces = 1;  // of a work request, at most kMostPieces
  uint32_t max_reads = 1;   // outstanding, each way
  uint32_t max_completions = 0;
  std::atomic<uint32_t> queue_pairs{0};  // that are open now
};

// Thread-safe. Held by whatever uses it: devices are let go with the last.
class Host {
 public:
  // Unavailable: there is no RDMA here, with why. InvalidArgument: the options are wrong.
  static absl::StatusOr<std::shared_ptr<Host>> Open(const HostOptions& options);

  const HostOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<HostDevice>>& devices() const { return devices_; }
  // Null: not in use.
  HostDevice* Find(const ibv_context* context) const;
  HostCounters& counters() { return counters_; }
  // Addresses of the devices' ports, for listening and for telling peers.
  std::vector<std::string> Addresses() const;

  // With every device, or with none. ResourceExhausted names the limit of locked memory where that
  // is why. The memory must stay mapped until RemoveMemory; ranges may overlap.
  absl::Status AddMemory(void* address, uint64_t bytes, MemoryRights rights);
  // What was added so. No call uses it any more.
  void RemoveMemory(void* address, uint64_t bytes);

 private:
  // A region that is to be, on one device.
  struct Piece {
    HostDevice* device = nullptr;
    char* address = nullptr;
    uint64_t bytes = 0;
    bool done = false;
    absl::Status status = {};
  };
  std::vector<Piece> PiecesOf(void* address, uint64_t bytes) const;
  explicit Host(const HostOptions& options) : options_(options) {}

  const HostOptions options_;
  std::vector<std::unique_ptr<HostDevice>> devices_;
  HostCounters counters_;
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_HOST_H_
