// The store's side of lent memory: descriptors that one peer handed over, and reads from them.
//
// Memory whose seals allow it (lent_mapping.h) is mapped and copied from there, as fast as any
// memory is. The rest is read by pread: a page that the peer took away, punched or never had reads
// as zeros or comes short. Either way there is no SIGBUS to catch and no memory is taken on the
// peer's behalf but a mapping's page tables, which are bounded with it.
#ifndef CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_
#define CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transport/blocking_thread.h"
#include "transport/shm/lent_mapping.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {

// InvalidArgument unless `fd` is memory that can be read and cannot shrink: a memfd with
// F_SEAL_SHRINK, of at least `bytes`.
absl::Status CheckLentFd(int fd, uint64_t bytes);

// How much lent memory a store maps, of all its connections. Thread-safe.
class MapBudget : public std::enable_shared_from_this<MapBudget> {
 public:
  explicit MapBudget(uint64_t bytes) : bytes_(bytes), left_(static_cast<int64_t>(bytes)) {}
  // None where the memory may not be mapped or the budget is used up; of that a connection, which
  // has `held` bytes of it, gets at most a quarter.
  LentMapping Map(int fd, uint64_t bytes, uint64_t held);
  // A large one elsewhere: that takes tens of milliseconds a GiB, which no connection waits for.
  void Unmap(LentMapping mapping);

 private:
  bool Take(uint64_t bytes, uint64_t held);
  void Give(uint64_t bytes) { left_.fetch_add(static_cast<int64_t>(bytes)); }
  const uint64_t bytes_;
  std::atomic<int64_t> left_;
  BlockingThread unmapping_{[](BlockingThread::Result) {}};
};

// Used by one thread at a time. All errors are InvalidArgument: the peer's doing.
class BorrowedMemory {
 public:
  // `budget` may be null: nothing is mapped.
  BorrowedMemory(uint32_t max_buffers, std::shared_ptr<MapBudget> budget)
      : buffers_(max_buffers), budget_(std::move(budget)) {}
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;
  ~BorrowedMemory();

  absl::Status Borrow(uint16_t buffer, uint64_t bytes, OwnedFd fd);
  absl::Status Return(uint16_t buffer);
  // Whether [offset, offset + bytes) lies in the buffer.
  absl::Status Check(uint16_t buffer, uint64_t offset, uint64_t bytes) const;
  // The bytes where they are. Empty: not mapped, or not there; Read does. Precondition: Check().
  absl::Span<const char> Peek(uint16_t buffer, uint64_t offset, uint64_t bytes);
  // Fills `to` from there. Precondition: Check().
  absl::Status Read(uint16_t buffer, uint64_t offset, absl::Span<const iovec> to);

 private:
  struct Buffer {
    OwnedFd fd;
    uint64_t bytes = 0;
    LentMapping mapping;  // none: by pread
  };
  void Unmap(Buffer& buffer);
  std::vector<Buffer> buffers_;  // by number
  const std::shared_ptr<MapBudget> budget_;
  uint64_t mapped_bytes_ = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_BORROWED_MEMORY_H_
