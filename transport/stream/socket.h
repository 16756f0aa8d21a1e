// Sockets as the stream wires use them: non-blocking, close-on-exec, no delay.
#ifndef CISTERN_TRANSPORT_STREAM_SOCKET_H_
#define CISTERN_TRANSPORT_STREAM_SOCKET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cistern::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  // Of a UNIX socket: what people call it, and what has to stay open for the address to hold.
  std::string path;
  std::shared_ptr<const void> keep;

  bool IsLoopback() const;
  uint16_t port() const;
  std::string ToString() const;  // "127.0.0.1:7610", "[::1]:7610", "unix:/run/cistern/store.sock"
};

// The addresses of `host`. With literal_only a name gives NotFound instead of asking the resolver,
// which may block for seconds. Unavailable: the name does not resolve.
absl::StatusOr<std::vector<SocketAddress>> ResolveHost(const std::string& host, uint16_t port,
                                                       bool literal_only);

// A listening socket and the address it got. Unavailable: the port is in use.
absl::StatusOr<int> ListenOn(const SocketAddress& address);
absl::StatusOr<SocketAddress> LocalAddress(int fd);

// Begins to connect; the socket turns writable when that has ended, then ConnectResult says how.
absl::StatusOr<int> BeginConnect(const SocketAddress& address);
absl::Status ConnectResult(int fd);
void SetNoDelay(int fd);

// Reads or writes without blocking or signals. -1: errno says why.
ssize_t ReadPieces(int fd, absl::Span<const iovec> pieces);
ssize_t WritePieces(int fd, absl::Span<const iovec> pieces);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_SOCKET_H_
