// Memory that a client lets the stores of its own host read: what AllocateBuffer gives.
#ifndef CISTERN_TRANSPORT_SHM_LENT_MEMORY_H_
#define CISTERN_TRANSPORT_SHM_LENT_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {

// Which memory may be lent. One for a client's channels. Thread-safe; lookups run without the lock
// on an immutable table.
class LentMemory {
 public:
  struct Region {
    uint64_t id = 0;  // never used twice
    uintptr_t begin = 0;
    uint64_t bytes = 0;
    OwnedFd fd;  // for reading only
  };
  struct Table {
    std::vector<std::shared_ptr<const Region>> regions;  // sorted by begin, disjoint
    // nullptr: not wholly inside one.
    const Region* Find(const void* data, uint64_t bytes) const;
    bool Has(uint64_t id) const;
  };

  LentMemory();
  // [data, data + bytes) maps the memfd `fd` from its start. What is handed to stores is a
  // descriptor that can only read. FailedPrecondition: it cannot be made (no /proc); the memory is
  // then served as any other is.
  absl::Status Add(void* data, uint64_t bytes, int fd);
  // To be called before the memory is unmapped. Stores let go of it within moments.
  void Remove(void* data);

  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  std::shared_ptr<const Table> table() const;

  // `fn` is called after each Remove, on any thread, until Unlisten; once more may be under way.
  uint64_t Listen(std::function<void()> fn);
  void Unlisten(uint64_t listener);

 private:
  void Replace(std::shared_ptr<const Table> table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::atomic<uint64_t> version_{1};
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_listener_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_LENT_MEMORY_H_
