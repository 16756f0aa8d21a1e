// The store's side of lent memory: descriptors that one peer handed over, and reads from them.
//
// The memory is read by pread, never mapped: a page that the peer took away, punched or never had
// reads as zeros or comes short. There is no SIGBUS to catch, no memory is taken on the peer's
// behalf, and nothing but a descriptor has to be bounded.
#ifndef CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_
#define CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {

// InvalidArgument unless `fd` is memory that can be read and cannot shrink: a memfd with
// F_SEAL_SHRINK, of at least `bytes`.
absl::Status CheckLentFd(int fd, uint64_t bytes);

// Used by one thread at a time. All errors are InvalidArgument: the peer's doing.
class BorrowedMemory {
 public:
  explicit BorrowedMemory(uint32_t max_buffers) : buffers_(max_buffers) {}

  absl::Status Borrow(uint16_t buffer, uint64_t bytes, OwnedFd fd);
  absl::Status Return(uint16_t buffer);
  // Whether [offset, offset + bytes) lies in the buffer.
  absl::Status Check(uint16_t buffer, uint64_t offset, uint64_t bytes) const;
  // Fills `to` from there. Precondition: Check().
  absl::Status Read(uint16_t buffer, uint64_t offset, absl::Span<const iovec> to) const;

 private:
  struct Buffer {
    OwnedFd fd;
    uint64_t bytes = 0;
  };
  std::vector<Buffer> buffers_;  // by number
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_
