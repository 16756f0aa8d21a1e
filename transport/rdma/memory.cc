#include "transport/rdma/memory.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport::rdma {

absl::Status DeviceMemory::Register(ibv_pd* pd, void* address, uint64_t bytes,
                                    MemoryRights rights) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (bytes == 0 || begin + bytes < begin) {
    return absl::InvalidArgumentError("rdma: no memory to register");
  }
  unsigned int access = IBV_ACCESS_LOCAL_WRITE;
  if (rights == MemoryRights::kRemote) access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion handle, rdma::Register(pd, address, bytes, access));
  MutexLock lock(mutex_);
  const auto next = regions_.lower_bound(begin);
  const bool overlaps =
      (next != regions_.end() && next->first < begin + bytes) ||
      (next != regions_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin);
  if (overlaps) return absl::AlreadyExistsError("rdma: part of it is registered already");
  regions_.emplace(begin, Region{bytes, std::move(handle)});
  return absl::OkStatus();
}

bool DeviceMemory::Remove(const void* address) {
  Region gone;
  MutexLock lock(mutex_);
  const auto it = regions_.find(reinterpret_cast<uintptr_t>(address));
  if (it == regions_.end()) return false;
  gone = std::move(it->second);
  regions_.erase(it);
  return true;
}

bool DeviceMemory::Find(const void* address, MemoryKeys* keys) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  auto it = regions_.upper_bound(at);
  if (it == regions_.begin()) return false;
  --it;
  if (at >= it->first + it->second.bytes) return false;
  keys->local_key = it->second.handle->lkey;
  keys->remote_key = it->second.handle->rkey;
  keys->bytes_left = it->first + it->second.bytes - at;
  return true;
}

size_t DeviceMemory::regions() const {
  MutexLock lock(mutex_);
  return regions_.size();
}

}  // namespace cistern::transport::rdma
