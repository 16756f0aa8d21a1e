// What of this process's memory the RDMA devices in use may reach, and by which keys.
#ifndef CISTERN_TRANSPORT_RDMA_MEMORY_H_
#define CISTERN_TRANSPORT_RDMA_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/rdma/handles.h"

namespace cistern::transport::rdma {

// Rights of registered memory: its own device's, and those of peers who are told the key.
enum class MemoryRights {
  kLocal,   // a store's segment: no peer reaches it
  kRemote,  // a client's buffer: the store that it asks writes and reads there
};

// What a device needs to use a range.
struct MemoryKeys {
  uint32_t local_key = 0;
  uint32_t remote_key = 0;
  uint64_t bytes_left = 0;  // from the address to the region's end
};

// Regions of one device: a table that readers take as it is. Thread-safe.
class DeviceMemory {
 public:
  // Register and Remove are called with no lock held that a wait for a device could hurt.
  absl::Status Register(ibv_pd* pd, void* address, uint64_t bytes, MemoryRights rights);
  // Whoever uses the region has ended. False: none begins there.
  bool Remove(const void* address);
  // Of the region that `address` lies in; false: it lies in none.
  bool Find(const void* address, MemoryKeys* keys) const;
  size_t regions() const;

 private:
  struct Region {
    uint64_t bytes = 0;
    MemoryRegion handle;
  };
  mutable Mutex mutex_;
  std::map<uintptr_t, Region> regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_MEMORY_H_
