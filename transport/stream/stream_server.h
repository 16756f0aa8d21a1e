// A server over a listening stream socket: event loops, connections, counters. The wires (tcp, shm)
// bring the socket and say how peers are accepted and bytes moved.
#ifndef CISTERN_TRANSPORT_STREAM_STREAM_SERVER_H_
#define CISTERN_TRANSPORT_STREAM_STREAM_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/identity.h"
#include "transport/server.h"
#include "transport/stream/link.h"

namespace cistern::transport {

struct StreamServerOptions {
  std::shared_ptr<ServerWire> wire;
  int io_threads = 2;
  ServerLimits limits;
  LocalIdentity identity;
  Clock* clock = &Clock::Real();
  // What the server says of itself.
  std::string address;
  uint16_t port = 0;
  // A loop looks on for so long after the last event before it sleeps. Infinite: it never does.
  absl::Duration spin = absl::ZeroDuration();
  // Runs once, after the loops have stopped.
  std::function<void()> on_stopped = {};
};
// Owns `listen_fd`, whatever it returns, unless it is of a wire without sockets. `handler` must
// outlive the server.
absl::StatusOr<std::unique_ptr<WireServer>> StartStreamServer(StreamServerOptions options,
                                                              int listen_fd,
                                                              RequestHandler* handler);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_STREAM_SERVER_H_
