// Registered memory of the wire's own: messages, and payload that lies (or is to land) where no
// device reaches.
#ifndef CISTERN_TRANSPORT_RDMA_BUFFERS_H_
#define CISTERN_TRANSPORT_RDMA_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "transport/rdma/handles.h"

namespace cistern::transport::rdma {

// In the wr_id of receives; the rest is the number of the buffer.
inline constexpr uint64_t kReceiveBit = uint64_t{1} << 63;

// Page-aligned bytes, registered. Freed after the region.
class RegisteredBytes {
 public:
  static absl::StatusOr<std::unique_ptr<RegisteredBytes>> Create(ibv_pd* pd, size_t bytes,
                                                                 unsigned int access);
  uint8_t* data() { return memory_.get(); }
  uint32_t local_key() const { return region_->lkey; }
  uint32_t remote_key() const { return region_->rkey; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  MemoryRegion region_;
};

// Buffers of one message each. Thread-safe.
class MessageBuffers {
 public:
  static absl::StatusOr<std::shared_ptr<MessageBuffers>> Create(ibv_pd* pd, uint32_t count);
  uint8_t* at(uint32_t slot);
  uint32_t key() const { return memory_->local_key(); }
  uint32_t count() const { return count_; }
  bool Take(uint32_t* slot);
  void Give(uint32_t slot);
  bool any() const;

 private:
  std::unique_ptr<RegisteredBytes> memory_;
  uint32_t count_ = 0;
  mutable Mutex mutex_;
  std::vector<uint32_t> free_ ABSL_GUARDED_BY(mutex_);
};

// Receives that the queue pairs of a device and loop share. Thread-safe.
class SharedReceives {
 public:
  static absl::StatusOr<std::shared_ptr<SharedReceives>> Create(ibv_pd* pd, uint32_t count);
  ibv_srq* queue() const { return queue_.get(); }
  uint8_t* at(uint32_t slot) { return buffers_->at(slot); }
  uint32_t count() const { return buffers_->count(); }
  absl::Status Post(uint32_t slot);

 private:
  std::shared_ptr<MessageBuffers> buffers_;
  SharedReceiveQueue queue_;
};

// Hands out and takes back in the same order. Used by one thread at a time; the memory is made by
// Prepare, or when it is first asked for.
class BounceRing {
 public:
  static constexpr size_t kBytes = 256 << 10;
  BounceRing(ibv_pd* pd, unsigned int access) : pd_(pd), access_(access) {}

  // ResourceExhausted: it cannot be registered.
  absl::Status Prepare();
  // At most `wanted` bytes, in one piece; *given = how many, 0: none now.
  absl::StatusOr<uint8_t*> Take(size_t wanted, size_t* given);
  void Give(size_t bytes) { begin_ += bytes; }
  bool full() const { return end_ - begin_ == kBytes; }
  uint32_t local_key() const { return memory_->local_key(); }
  uint32_t remote_key() const { return memory_->remote_key(); }

 private:
  ibv_pd* const pd_;
  const unsigned int access_;
  std::unique_ptr<RegisteredBytes> memory_;
  uint64_t begin_ = 0;  // [begin_, end_) is out
  uint64_t end_ = 0;
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_BUFFERS_H_
