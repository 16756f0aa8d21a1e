#include "tools/poolbench/socket_pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status.h"

namespace cistern::poolbench {

absl::StatusOr<TcpPair> TcpPair::Connect() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return ErrnoStatus(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  int client = -1;
  int server = -1;
  if (bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
      getsockname(listener, generic, &size) == 0) {
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(client, generic, size) == 0) {
      server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    }
  }
  const int error = errno;
  close(listener);
  TcpPair pair(client, server);
  if (server < 0) return ErrnoStatus(error, "a socket pair on loopback");
  const int one = 1;
  for (int fd : {client, server}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return pair;
}

TcpPair::TcpPair(TcpPair&& other) noexcept
    : client_(std::exchange(other.client_, -1)), server_(std::exchange(other.server_, -1)) {}

TcpPair& TcpPair::operator=(TcpPair&& other) noexcept {
  std::swap(client_, other.client_);
  std::swap(server_, other.server_);
  return *this;
}

TcpPair::~TcpPair() {
  if (client_ >= 0) close(client_);
  if (server_ >= 0) close(server_);
}

void TcpPair::Shutdown() {
  shutdown(client_, SHUT_RDWR);
  shutdown(server_, SHUT_RDWR);
}

bool WriteAll(int fd, const uint8_t* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool ReadAll(int fd, uint8_t* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(fd, data, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace cistern::poolbench
