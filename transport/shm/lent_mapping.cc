#include "transport/shm/lent_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cistern::transport {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kGranule = 64 << 10;
// Stands for all users that a user namespace does not know.
constexpr uid_t kOverflowUid = 65534;

}  // namespace

bool MayMapLent(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return false;
  if ((seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) == 0) return false;
  struct statfs system {};
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) return false;
  struct stat info {};
  return fstat(fd, &info) == 0 && info.st_uid == geteuid() && info.st_uid != kOverflowUid;
}

LentMapping LentMapping::Map(int fd, uint64_t bytes) {
  LentMapping mapping;
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, /*offset=*/0);
  if (data == MAP_FAILED) return mapping;
  // A fork's child has no business in it, nor has a core dump. Best effort.
  (void)madvise(data, bytes, MADV_DONTFORK);
  (void)madvise(data, bytes, MADV_DONTDUMP);
  mapping.data_ = static_cast<const char*>(data);
  mapping.bytes_ = bytes;
  mapping.whole_.resize((bytes + kGranule - 1) / kGranule);
  return mapping;
}

bool LentMapping::Ask(uint64_t begin, uint64_t end) {
  begin = begin / kPage * kPage;
  pages_.resize((end - begin + kPage - 1) / kPage);
  void* const first = const_cast<char*>(data_) + begin;
  if (mincore(first, end - begin, pages_.data()) != 0) return false;
  return std::all_of(pages_.begin(), pages_.end(),
                     [](unsigned char page) { return (page & 1) != 0; });
}

const char* LentMapping::Find(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  const auto first = static_cast<std::ptrdiff_t>(offset / kGranule);
  const auto after = static_cast<std::ptrdiff_t>((end + kGranule - 1) / kGranule);
  if (std::find(whole_.begin() + first, whole_.begin() + after, false) == whole_.begin() + after) {
    return data_ + offset;
  }
  // With what lies around it, so that the next piece is known, too.
  const uint64_t around = std::min(static_cast<uint64_t>(after) * kGranule, bytes_);
  if (Ask(static_cast<uint64_t>(first) * kGranule, around)) {
    std::fill(whole_.begin() + first, whole_.begin() + after, true);
    return data_ + offset;
  }
  return Ask(offset, end) ? data_ + offset : nullptr;
}

LentMapping& LentMapping::operator=(LentMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pages_, other.pages_);
  std::swap(whole_, other.whole_);
  return *this;
}

LentMapping::~LentMapping() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
}

}  // namespace cistern::transport
