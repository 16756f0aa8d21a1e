// What of this process's memory the RDMA devices in use may reach, and by which keys.
#ifndef CISTERN_TRANSPORT_RDMA_MEMORY_H_
#define CISTERN_TRANSPORT_RDMA_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/rdma/handles.h"

namespace cistern::transport::rdma {

// Rights of registered memory: its own device's, and those of peers who are told the key.
enum class MemoryRights : uint8_t {
  kLocal = 0,        // a store's segment: no peer reaches it
  kRemoteRead = 1,   // a client's buffer that puts may read
  kRemoteWrite = 2,  // and one that gets may write
  kRemote = 3,       // both
};

// What a device needs to use a range.
struct MemoryKeys {
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint64_t bytes_left = 0;  // from the address to the region's end
};

// Regions of one device, which may overlap. Thread-safe.
class DeviceMemory {
 public:
  // Register and Remove are called with no lock held that a wait for a device could hurt.
  absl::Status Register(ibv_pd* pd, void* address, uint64_t bytes, MemoryRights rights);
  // One that was registered so is found no more, and given up when no other overlaps it: calls that
  // name those may be using its key. False: there is none.
  bool Remove(const void* address, uint64_t bytes);
  // Of a region with these rights that `address` lies in; false: it lies in none.
  bool Find(const void* address, MemoryRights needed, MemoryKeys* keys) const;
  // Registered with the device now.
  size_t regions() const;

 private:
  struct Region {
    uint64_t bytes = 0;
    MemoryRights rights{};
    MemoryRegion handle;
  };
  bool OverlapsLocked(uintptr_t begin, uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::multimap<uintptr_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
  // Some have overlapped: then the one before an address need not be the one that it lies in.
  bool overlap_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::pair<uintptr_t, Region>> leaving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_MEMORY_H_
