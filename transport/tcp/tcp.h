// The TCP wire.
#ifndef CISTERN_TRANSPORT_TCP_TCP_H_
#define CISTERN_TRANSPORT_TCP_TCP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/server.h"

namespace cistern::transport {

struct TcpServerOptions {
  std::string listen_address = "127.0.0.1";  // IPv4, IPv6 or a host name
  uint16_t port = 0;                         // 0 = any free one
  int io_threads = 2;
  ServerLimits limits;
  LocalIdentity identity;
  Clock* clock = &Clock::Real();
};
// Starts listening. `handler` must outlive the server. Unavailable "port N is in use ..." when it
// is; the address is refused (FailedPrecondition) when it is not loopback and there is no token.
absl::StatusOr<std::unique_ptr<WireServer>> ListenTcp(const TcpServerOptions& options,
                                                      RequestHandler* handler);

struct TcpChannelOptions {
  std::string host;
  uint16_t port = 0;
  LocalIdentity identity;
  std::string expected_peer_id;  // 16 bytes; empty = any
  int connections = 2;           // for payload, beside one kept for small messages
  bool separate_small_lane = true;
  absl::Duration connect_timeout = absl::Seconds(2);
  Clock* clock = &Clock::Real();
};
// Makes no connection yet.
std::unique_ptr<Channel> MakeTcpChannel(IoContext* io, const TcpChannelOptions& options);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_TCP_TCP_H_
