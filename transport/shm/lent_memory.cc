#include "transport/shm/lent_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport {

const LentMemory::Region* LentMemory::Table::Find(const void* data, uint64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto after =
      std::upper_bound(regions.begin(), regions.end(), address,
                       [](uintptr_t a, const auto& region) { return a < region->begin; });
  if (after == regions.begin()) return nullptr;
  const Region& region = **std::prev(after);
  const uint64_t offset = address - region.begin;
  return offset < region.bytes && bytes <= region.bytes - offset ? &region : nullptr;
}

bool LentMemory::Table::Has(uint64_t id) const {
  return std::any_of(regions.begin(), regions.end(),
                     [id](const auto& region) { return region->id == id; });
}

LentMemory::LentMemory() : table_(std::make_shared<const Table>()) {}

absl::Status LentMemory::Add(void* data, uint64_t bytes, int fd) {
  auto region = std::make_shared<Region>();
  region->begin = reinterpret_cast<uintptr_t>(data);
  region->bytes = bytes;
  // A store that copies from it needs no more, and could not write into it if it wanted.
  region->fd = OwnedFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
  if (!region->fd) {
    return absl::FailedPreconditionError(
        ErrnoStatus(errno, "cannot reopen a buffer for reading").message());
  }
  MutexLock lock(mutex_);
  region->id = next_id_++;
  auto table = std::make_shared<Table>(*table_);
  const auto at = std::upper_bound(table->regions.begin(), table->regions.end(), region->begin,
                                   [](uintptr_t a, const auto& r) { return a < r->begin; });
  table->regions.insert(at, std::move(region));
  Replace(std::move(table));
  return absl::OkStatus();
}

void LentMemory::Remove(void* data) {
  std::vector<std::function<void()>> listeners;
  {
    MutexLock lock(mutex_);
    auto table = std::make_shared<Table>(*table_);
    std::erase_if(table->regions, [data](const auto& region) {
      return region->begin == reinterpret_cast<uintptr_t>(data);
    });
    Replace(std::move(table));
    for (const auto& [id, fn] : listeners_) listeners.push_back(fn);
  }
  for (const auto& fn : listeners) fn();
}

void LentMemory::Replace(std::shared_ptr<const Table> table) {
  table_ = std::move(table);
  version_.fetch_add(1, std::memory_order_acq_rel);
}

std::shared_ptr<const LentMemory::Table> LentMemory::table() const {
  MutexLock lock(mutex_);
  return table_;
}

uint64_t LentMemory::Listen(std::function<void()> fn) {
  MutexLock lock(mutex_);
  const uint64_t id = next_listener_++;
  listeners_.emplace(id, std::move(fn));
  return id;
}

void LentMemory::Unlisten(uint64_t listener) {
  MutexLock lock(mutex_);
  listeners_.erase(listener);
}

}  // namespace cistern::transport
