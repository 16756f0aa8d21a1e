// Memory of AllocateBuffer: shared, so that a store on the same host can be lent it.
#ifndef CISTERN_CLIENT_SHARED_MEMORY_H_
#define CISTERN_CLIENT_SHARED_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace cistern {

// A mapped memfd whose size is sealed, and that nothing but this mapping can change: whoever else
// maps it is safe from truncations and holes. Zeroed, page-aligned, left out of core dumps.
// Movable; unmaps when destroyed.
class SharedMemory {
 public:
  // InvalidArgument: 0 bytes. ResourceExhausted: the system has no room or no descriptor.
  static absl::StatusOr<SharedMemory> Allocate(uint64_t bytes);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  int fd_ = -1;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_SHARED_MEMORY_H_
