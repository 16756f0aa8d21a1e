#include "transport/rdma/memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport::rdma {
namespace {

unsigned int AccessOf(MemoryRights rights) {
  switch (rights) {
    case MemoryRights::kLocal:
      return IBV_ACCESS_LOCAL_WRITE;
    case MemoryRights::kRemoteRead:
      // Without the right to write, so that memory can be registered that this process only reads.
      return IBV_ACCESS_REMOTE_READ;
    case MemoryRights::kRemoteWrite:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    case MemoryRights::kRemote:
      break;
  }
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
}

bool Has(MemoryRights rights, MemoryRights needed) {
  return (static_cast<unsigned>(rights) & static_cast<unsigned>(needed)) ==
         static_cast<unsigned>(needed);
}

}  // namespace

absl::Status DeviceMemory::Register(ibv_pd* pd, void* address, uint64_t bytes,
                                    MemoryRights rights) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (bytes == 0 || begin + bytes < begin) {
    return absl::InvalidArgumentError("rdma: no memory to register");
  }
  CISTERN_ASSIGN_OR_RETURN(MemoryRegion handle,
                           rdma::Register(pd, address, bytes, AccessOf(rights)));
  MutexLock lock(mutex_);
  overlap_ = overlap_ || OverlapsLocked(begin, bytes);
  regions_.emplace(begin, Region{bytes, rights, std::move(handle)});
  return absl::OkStatus();
}

bool DeviceMemory::OverlapsLocked(uintptr_t begin, uint64_t bytes) const {
  auto it = regions_.lower_bound(begin + bytes);
  while (it != regions_.begin()) {
    --it;
    if (it->first + it->second.bytes > begin) return true;
    if (!overlap_) return false;
  }
  return false;
}

bool DeviceMemory::Remove(const void* address, uint64_t bytes) {
  std::vector<std::pair<uintptr_t, Region>> gone;  // deregistered without the lock
  MutexLock lock(mutex_);
  const auto [first, last] = regions_.equal_range(reinterpret_cast<uintptr_t>(address));
  const auto it =
      std::find_if(first, last, [bytes](const auto& entry) { return entry.second.bytes == bytes; });
  if (it == last) return false;
  leaving_.emplace_back(it->first, std::move(it->second));
  regions_.erase(it);
  for (size_t i = 0; i < leaving_.size();) {
    if (OverlapsLocked(leaving_[i].first, leaving_[i].second.bytes)) {
      ++i;
      continue;
    }
    gone.push_back(std::move(leaving_[i]));
    leaving_.erase(leaving_.begin() + static_cast<ptrdiff_t>(i));
  }
  return true;
}

bool DeviceMemory::Find(const void* address, MemoryRights needed, MemoryKeys* keys) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  MutexLock lock(mutex_);
  auto it = regions_.upper_bound(at);
  while (it != regions_.begin()) {
    --it;
    const Region& region = it->second;
    if (at < it->first + region.bytes && Has(region.rights, needed)) {
      keys->local_key = region.handle->lkey;
      keys->remote_key = region.handle->rkey;
      keys->bytes_left = it->first + region.bytes - at;
      return true;
    }
    if (!overlap_) return false;
  }
  return false;
}

size_t DeviceMemory::regions() const {
  MutexLock lock(mutex_);
  return regions_.size() + leaving_.size();
}

}  // namespace cistern::transport::rdma
