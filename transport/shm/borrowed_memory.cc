#include "transport/shm/borrowed_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

// Beyond what any mapping can be.
constexpr uint64_t kLargest = uint64_t{1} << 46;
constexpr uint64_t kUnmappedAtOnceBytes = 64 << 20;

}  // namespace

absl::Status CheckLentFd(int fd, uint64_t bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("shm: what was lent is not memory");
  }
  const int mode = fcntl(fd, F_GETFL);
  if (mode < 0 || (mode & O_PATH) != 0 || (mode & O_ACCMODE) == O_WRONLY) {
    return absl::InvalidArgumentError("shm: what was lent cannot be read");
  }
  // Only memory has seals: no file system of the peer's making can answer the reads, or not answer.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("shm: lent memory must be sealed against shrinking");
  }
  if (bytes == 0 || bytes > kLargest || static_cast<uint64_t>(info.st_size) < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shm: ", bytes, " bytes lent of memory of ", info.st_size));
  }
  return absl::OkStatus();
}

bool MapBudget::Take(uint64_t bytes, uint64_t held) {
  if (bytes > bytes_ / 4 || held > bytes_ / 4 - bytes) return false;
  const auto amount = static_cast<int64_t>(bytes);
  if (left_.fetch_sub(amount) >= amount) return true;
  left_.fetch_add(amount);
  return false;
}

LentMapping MapBudget::Map(int fd, uint64_t bytes, uint64_t held) {
  if (!MayMapLent(fd) || !Take(bytes, held)) return LentMapping();
  LentMapping mapping = LentMapping::Map(fd, bytes);
  if (!mapping) Give(bytes);
  return mapping;
}

void MapBudget::Unmap(LentMapping mapping) {
  if (mapping.bytes() <= kUnmappedAtOnceBytes) {
    const uint64_t bytes = mapping.bytes();
    mapping = LentMapping();
    return Give(bytes);
  }
  unmapping_.Run([self = shared_from_this(), mapping = std::move(mapping)]() mutable {
    const uint64_t bytes = mapping.bytes();
    mapping = LentMapping();
    self->Give(bytes);
    return BlockingThread::Result([] {});
  });
}

BorrowedMemory::~BorrowedMemory() {
  for (Buffer& buffer : buffers_) Unmap(buffer);
}

absl::Status BorrowedMemory::Borrow(uint16_t buffer, uint64_t bytes, OwnedFd fd) {
  if (buffer >= buffers_.size() || buffers_[buffer].fd) {
    return absl::InvalidArgumentError(
        absl::StrCat("shm: lent as number ", buffer, " of ", buffers_.size(), ", or twice"));
  }
  CISTERN_RETURN_IF_ERROR(CheckLentFd(fd.get(), bytes));
  Buffer& borrowed = buffers_[buffer];
  if (budget_ != nullptr) borrowed.mapping = budget_->Map(fd.get(), bytes, mapped_bytes_);
  mapped_bytes_ += borrowed.mapping.bytes();
  borrowed.fd = std::move(fd);
  borrowed.bytes = bytes;
  return absl::OkStatus();
}

void BorrowedMemory::Unmap(Buffer& buffer) {
  if (!buffer.mapping) return;
  mapped_bytes_ -= buffer.mapping.bytes();
  budget_->Unmap(std::move(buffer.mapping));
}

absl::Status BorrowedMemory::Return(uint16_t buffer) {
  if (buffer >= buffers_.size() || !buffers_[buffer].fd) {
    return absl::InvalidArgumentError(absl::StrCat("shm: nothing is lent as number ", buffer));
  }
  Unmap(buffers_[buffer]);
  buffers_[buffer] = Buffer();
  return absl::OkStatus();
}

absl::Status BorrowedMemory::Check(uint16_t buffer, uint64_t offset, uint64_t bytes) const {
  if (buffer >= buffers_.size() || !buffers_[buffer].fd) {
    return absl::InvalidArgumentError(absl::StrCat("shm: nothing is lent as number ", buffer));
  }
  const uint64_t size = buffers_[buffer].bytes;
  if (offset > size || bytes > size - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("shm: bytes [", offset, ", +", bytes, ") of lent memory of ", size));
  }
  return absl::OkStatus();
}

absl::Span<const char> BorrowedMemory::Peek(uint16_t buffer, uint64_t offset, uint64_t bytes) {
  LentMapping& mapping = buffers_[buffer].mapping;
  const char* const data = mapping ? mapping.Find(offset, bytes) : nullptr;
  if (data == nullptr) return {};
  return {data, bytes};
}

absl::Status BorrowedMemory::Read(uint16_t buffer, uint64_t offset, absl::Span<const iovec> to) {
  uint64_t wanted = 0;
  for (const iovec& piece : to) wanted += piece.iov_len;
  if (const absl::Span<const char> from = Peek(buffer, offset, wanted); !from.empty()) {
    const char* next = from.data();
    for (const iovec& piece : to) {
      std::memcpy(piece.iov_base, next, piece.iov_len);
      next += piece.iov_len;
    }
    return absl::OkStatus();
  }
  const int fd = buffers_[buffer].fd.get();
  size_t done = 0;  // bytes of to.front() that are filled
  while (!to.empty()) {
    const iovec rest = {static_cast<char*>(to.front().iov_base) + done, to.front().iov_len - done};
    ssize_t n = 0;
    do {
      n = done == 0 ? preadv(fd, to.data(), static_cast<int>(to.size()), static_cast<off_t>(offset))
                    : pread(fd, rest.iov_base, rest.iov_len, static_cast<off_t>(offset));
    } while (n < 0 && errno == EINTR);
    if (n <= 0) return absl::InvalidArgumentError("shm: lent memory could not be read");
    offset += static_cast<uint64_t>(n);
    // Walk over what was filled.
    auto left = static_cast<size_t>(n);
    while (left > 0) {
      const size_t step = std::min(left, to.front().iov_len - done);
      left -= step;
      done += step;
      if (done == to.front().iov_len) {
        to.remove_prefix(1);
        done = 0;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace cistern::transport
