#include "client/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status.h"

namespace cistern {
namespace {

absl::Status NoRoom(const char* what, uint64_t bytes) {
  const absl::Status status = ErrnoStatus(errno, what);
  return absl::ResourceExhaustedError(absl::StrCat(status.message(), " (", bytes, " bytes)"));
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Allocate(uint64_t bytes) {
  constexpr uint64_t kLargest = uint64_t{1} << 46;
  if (bytes == 0 || bytes > kLargest) {
    return absl::InvalidArgumentError("a buffer has 1 byte to 64 TiB");
  }
  SharedMemory memory;
  memory.bytes_ = RoundUp(bytes, 4096);
  memory.fd_ = memfd_create("cistern-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.fd_ < 0) return NoRoom("memfd_create", bytes);
  // 0600: who was not lent it cannot open it through /proc.
  if (fchmod(memory.fd_, 0600) != 0 ||
      ftruncate(memory.fd_, static_cast<off_t>(memory.bytes_)) != 0 ||
      fcntl(memory.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return NoRoom("sizing a buffer", bytes);
  }
  void* data =
      mmap(nullptr, memory.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_, /*offset=*/0);
  if (data == MAP_FAILED) return NoRoom("mapping a buffer", bytes);
  memory.data_ = data;
  // From here on nobody, not even this process, can punch holes into it or write it but by this
  // mapping: a store maps it without a care. A kernel before 5.1 does not know the seal; stores
  // then read it with a system call for each piece.
  (void)fcntl(memory.fd_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  // Gigabytes of cache contents say nothing in a core dump. Best effort.
  (void)madvise(data, memory.bytes_, MADV_DONTDUMP);
  return memory;
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace cistern
