#include "transport/stream/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr int kListenBacklog = 1024;

}  // namespace

bool SocketAddress::IsLoopback() const {
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  if (storage.ss_family == AF_UNIX) return true;
  if (storage.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(storage);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
  }
  return false;
}

uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

std::string SocketAddress::ToString() const {
  if (storage.ss_family == AF_UNIX) return absl::StrCat("unix:", path);
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, host,
              sizeof(host));
    return absl::StrCat("[", host, "]:", port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, host, sizeof(host));
  return absl::StrCat(host, ":", port());
}

absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, uint16_t port,
                                                       bool literal_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (literal_only ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error != 0) {
    if (literal_only) return absl::NotFoundError("not a literal address");
    return absl::UnavailableError(
        absl::StrCat("cannot resolve \"", host, "\": ", gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    address.bytes = info->ai_addrlen;
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  return addresses;
}

absl::StatusOr<int> ListenOn(const SocketAddress& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 ||
      listen(fd, kListenBacklog) != 0) {
    const int error = errno;
    close(fd);
    if (error == EADDRINUSE) {
      return absl::UnavailableError(absl::StrCat("port ", address.port(), " is in use (",
                                                 address.ToString(),
                                                 "): stop the other process or choose another"));
    }
    return ErrnoStatus(error, absl::StrCat("listen on ", address.ToString()));
  }
  return fd;
}

absl::StatusOr<SocketAddress> LocalAddress(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  return address;
}

absl::StatusOr<int> BeginConnect(const SocketAddress& address) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  if (address.storage.ss_family != AF_UNIX) SetNoDelay(fd);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0 &&
      errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    return absl::UnavailableError(std::strerror(error));
  }
  return fd;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t bytes = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(std::strerror(error));
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

ssize_t ReadPieces(int fd, absl::Span<const iovec> pieces) {
  for (;;) {
    const ssize_t n = pieces.size() == 1
                          ? recv(fd, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                          : readv(fd, pieces.data(), static_cast<int>(pieces.size()));
    if (n >= 0 || errno != EINTR) return n;
  }
}

ssize_t WritePieces(int fd, absl::Span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0 || errno != EINTR) return n;
  }
}

}  // namespace cistern::transport
