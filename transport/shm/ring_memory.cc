#include "transport/shm/ring_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr int kRingSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status NoRoom(const char* what) {
  return absl::ResourceExhaustedError(ErrnoStatus(errno, what).message());
}

}  // namespace

absl::StatusOr<RingMemory> RingMemory::Map(int fd, uint64_t ring_bytes) {
  const uint64_t bytes = RingMemoryBytes(ring_bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, /*offset=*/0);
  if (data == MAP_FAILED) return NoRoom("mapping a ring");
  // A fork's child has no business in it, nor has a core dump. Best effort.
  (void)madvise(data, bytes, MADV_DONTFORK);
  (void)madvise(data, bytes, MADV_DONTDUMP);
  RingMemory memory;
  memory.base_ = static_cast<char*>(data);
  memory.ring_bytes_ = ring_bytes;
  return memory;
}

absl::StatusOr<RingMemory> RingMemory::Create(uint64_t ring_bytes, OwnedFd* fd) {
  OwnedFd made(memfd_create("cistern-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made) return NoRoom("memfd_create");
  // 0600: who was not handed it cannot open it through /proc.
  if (fchmod(made.get(), 0600) != 0 ||
      ftruncate(made.get(), static_cast<off_t>(RingMemoryBytes(ring_bytes))) != 0 ||
      fcntl(made.get(), F_ADD_SEALS, kRingSeals) != 0) {
    return NoRoom("sizing a ring");
  }
  CISTERN_ASSIGN_OR_RETURN(RingMemory memory, Map(made.get(), ring_bytes));
  memory.page()->magic = kRingMagic;
  memory.page()->ring_bytes = ring_bytes;
  *fd = std::move(made);
  return memory;
}

absl::StatusOr<RingMemory> RingMemory::Adopt(const OwnedFd& fd, uint64_t ring_bytes) {
  struct stat info {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (ring_bytes < kMinRingBytes || ring_bytes > kMaxRingBytes || ring_bytes % 4096 != 0 ||
      fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0 ||
      info.st_size != static_cast<off_t>(RingMemoryBytes(ring_bytes))) {
    return absl::InvalidArgumentError("shm: what the store handed over is no ring");
  }
  absl::StatusOr<RingMemory> mapped = Map(fd.get(), ring_bytes);
  if (CISTERN_FAULT("shm.adopt")) mapped = absl::ResourceExhaustedError("fault");
  // That this process is short of something is nothing the call did wrong: another way may do.
  if (!mapped.ok()) return absl::UnavailableError(mapped.status().message());
  RingMemory memory = *std::move(mapped);
  if (memory.page()->magic != kRingMagic || memory.page()->ring_bytes != ring_bytes) {
    return absl::InvalidArgumentError("shm: what the store handed over is no ring");
  }
  return memory;
}

RingMemory& RingMemory::operator=(RingMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(ring_bytes_, other.ring_bytes_);
  return *this;
}

RingMemory::~RingMemory() {
  if (base_ != nullptr) munmap(base_, RingMemoryBytes(ring_bytes_));
}

}  // namespace cistern::transport
