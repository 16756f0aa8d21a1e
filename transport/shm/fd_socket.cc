#include "transport/shm/fd_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace cistern::transport {
namespace {

struct ControlBuffer {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * kMaxFdsPerMessage)];
};

}  // namespace

absl::StatusOr<FdRead> ReadWithFds(int socket, absl::Span<const iovec> pieces, size_t max_fds,
                                   std::vector<OwnedFd>* fds) {
  CISTERN_CHECK(max_fds <= kMaxFdsPerMessage);
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  message.msg_control = control.bytes;
  // Not CMSG_SPACE, whose padding has room for one more than was asked for.
  message.msg_controllen = CMSG_LEN(sizeof(int) * max_fds);
  ssize_t n = 0;
  do {
    n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return FdRead{0, true};
  if (n < 0) return ErrnoStatus(errno, "read");
  size_t received = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      fds->push_back(OwnedFd(fd));
      ++received;
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    // With room left for what was asked for, it is this process that can have no more.
    if (received < max_fds) {
      return absl::UnavailableError(
          "shm: no descriptors are left for those that came: raise the limit (LimitNOFILE=)");
    }
    return absl::InvalidArgumentError("shm: descriptors came that were not asked for");
  }
  if (n == 0) return absl::UnavailableError("the peer closed it");
  size_t room = 0;
  for (const iovec& piece : pieces) room += piece.iov_len;
  // A read ends where descriptors came, whatever is behind them.
  return FdRead{static_cast<size_t>(n), received == 0 && static_cast<size_t>(n) < room};
}

absl::StatusOr<size_t> WriteWithFds(int socket, absl::Span<const iovec> pieces,
                                    absl::Span<const int> fds) {
  CISTERN_CHECK(fds.size() <= kMaxFdsPerMessage);
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t n = 0;
  do {
    n = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return size_t{0};
  if (n < 0) return ErrnoStatus(errno, "write");
  return static_cast<size_t>(n);
}

}  // namespace cistern::transport
