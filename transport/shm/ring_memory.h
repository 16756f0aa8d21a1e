// The memory of one connection's rings: made and sealed by the store, mapped by both.
#ifndef CISTERN_TRANSPORT_SHM_RING_MEMORY_H_
#define CISTERN_TRANSPORT_SHM_RING_MEMORY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "transport/shm/format.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {

// A mapping; unmaps when destroyed. Movable.
class RingMemory {
 public:
  // The store's side. *fd: a descriptor to hand to the client; its size is sealed, so that nobody
  // can take the memory from under the other. ResourceExhausted: the system has no more.
  static absl::StatusOr<RingMemory> Create(uint64_t ring_bytes, OwnedFd* fd);
  // The client's side. InvalidArgument: it is not what a store hands out. Unavailable: this process
  // cannot map it.
  static absl::StatusOr<RingMemory> Adopt(const OwnedFd& fd, uint64_t ring_bytes);

  RingMemory() = default;
  RingMemory(RingMemory&& other) noexcept { *this = std::move(other); }
  RingMemory& operator=(RingMemory&& other) noexcept;
  ~RingMemory();

  explicit operator bool() const { return base_ != nullptr; }
  // Never trust what it says: the other side writes it.
  RingPage* page() const { return reinterpret_cast<RingPage*>(base_); }
  uint64_t ring_bytes() const { return ring_bytes_; }
  char* to_store() const { return base_ + kRingPageBytes; }
  char* to_client() const { return base_ + kRingPageBytes + ring_bytes_; }

 private:
  static absl::StatusOr<RingMemory> Map(int fd, uint64_t ring_bytes);
  char* base_ = nullptr;
  uint64_t ring_bytes_ = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_RING_MEMORY_H_
