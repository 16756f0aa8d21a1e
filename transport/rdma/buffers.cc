#include "transport/rdma/buffers.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "transport/rdma/format.h"

namespace cistern::transport::rdma {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

void RegisteredBytes::Free::operator()(uint8_t* memory) const { std::free(memory); }

absl::StatusOr<std::unique_ptr<RegisteredBytes>> RegisteredBytes::Create(ibv_pd* pd, size_t bytes,
                                                                         unsigned int access) {
  auto made = std::make_unique<RegisteredBytes>();
  void* memory = nullptr;
  if (posix_memalign(&memory, kPageBytes, bytes) != 0) {
    return absl::ResourceExhaustedError("rdma: no memory for messages");
  }
  std::memset(memory, 0, bytes);
  made->memory_.reset(static_cast<uint8_t*>(memory));
  CISTERN_ASSIGN_OR_RETURN(made->region_, Register(pd, memory, bytes, access));
  return made;
}

absl::StatusOr<std::shared_ptr<MessageBuffers>> MessageBuffers::Create(ibv_pd* pd, uint32_t count) {
  auto made = std::make_shared<MessageBuffers>();
  CISTERN_ASSIGN_OR_RETURN(made->memory_, RegisteredBytes::Create(pd, size_t{count} * kMessageBytes,
                                                                  IBV_ACCESS_LOCAL_WRITE));
  made->count_ = count;
  MutexLock lock(made->mutex_);
  for (uint32_t slot = count; slot-- > 0;) made->free_.push_back(slot);
  return made;
}

uint8_t* MessageBuffers::at(uint32_t slot) {
  CISTERN_CHECK(slot < count_);
  return memory_->data() + size_t{slot} * kMessageBytes;
}

bool MessageBuffers::Take(uint32_t* slot) {
  MutexLock lock(mutex_);
  if (free_.empty()) return false;
  *slot = free_.back();
  free_.pop_back();
  return true;
}

void MessageBuffers::Give(uint32_t slot) {
  MutexLock lock(mutex_);
  free_.push_back(slot);
}

bool MessageBuffers::any() const {
  MutexLock lock(mutex_);
  return !free_.empty();
}

absl::StatusOr<std::shared_ptr<SharedReceives>> SharedReceives::Create(ibv_pd* pd, uint32_t count) {
  auto made = std::make_shared<SharedReceives>();
  CISTERN_ASSIGN_OR_RETURN(made->buffers_, MessageBuffers::Create(pd, count));
  CISTERN_ASSIGN_OR_RETURN(made->queue_, CreateSharedReceiveQueue(pd, count, 1));
  for (uint32_t slot = 0; slot < count; ++slot) CISTERN_RETURN_IF_ERROR(made->Post(slot));
  return made;
}

absl::Status SharedReceives::Post(uint32_t slot) {
  ibv_sge piece = {reinterpret_cast<uintptr_t>(buffers_->at(slot)), kMessageBytes, buffers_->key()};
  ibv_recv_wr request = {};
  request.wr_id = kReceiveBit | slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(queue_.get(), &request, &bad);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "ibv_post_srq_recv");
}

absl::Status BounceRing::Prepare() {
  if (memory_ != nullptr) return absl::OkStatus();
  CISTERN_ASSIGN_OR_RETURN(memory_, RegisteredBytes::Create(pd_, kBytes, access_));
  return absl::OkStatus();
}

absl::StatusOr<uint8_t*> BounceRing::Take(size_t wanted, size_t* given) {
  *given = 0;
  CISTERN_RETURN_IF_ERROR(Prepare());
  const size_t at = static_cast<size_t>(end_ % kBytes);
  *given = std::min({wanted, kBytes - static_cast<size_t>(end_ - begin_), kBytes - at});
  end_ += *given;
  return memory_->data() + at;
}

}  // namespace cistern::transport::rdma
