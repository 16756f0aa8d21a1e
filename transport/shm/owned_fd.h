// A file descriptor that is closed with its owner.
#ifndef CISTERN_TRANSPORT_SHM_OWNED_FD_H_
#define CISTERN_TRANSPORT_SHM_OWNED_FD_H_

#include <unistd.h>

#include <utility>

namespace cistern::transport {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // The caller's to close from now on.
  int Release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_OWNED_FD_H_
