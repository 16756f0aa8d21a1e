// The RDMA wire.
#ifndef CISTERN_TRANSPORT_RDMA_RDMA_H_
#define CISTERN_TRANSPORT_RDMA_RDMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/rdma/host.h"
#include "transport/server.h"

namespace cistern::transport {

// How a server's loops wait for completions.
enum class Polling {
  kEvent,     // asleep
  kAdaptive,  // looking on for a little after each, then asleep
  kBusy,      // looking on: a core for each loop
};

struct RdmaServerOptions {
  std::shared_ptr<rdma::Host> host;
  // Numbers; empty = those of all the host's ports.
  std::vector<std::string> listen_addresses;
  uint16_t port = 0;  // of rdma_cm, which has its own; 0 = any free one
  int io_threads = 1;
  Polling polling = Polling::kEvent;
  ServerLimits limits;
  LocalIdentity identity;
  Clock* clock = &Clock::Real();
};
// Starts listening. `handler` must outlive the server. Payload lies best in memory that was added
// to the host. Unavailable: the port is in use, or no address could be listened on.
// FailedPrecondition: there is no token (no RDMA address is loopback).
absl::StatusOr<std::unique_ptr<WireServer>> ListenRdma(const RdmaServerOptions& options,
                                                       RequestHandler* handler);

struct RdmaChannelOptions {
  std::shared_ptr<rdma::Host> host;
  // Numbers or names. Connections begin with one after the other, and go on with those behind it.
  std::vector<std::string> addresses;
  uint16_t port = 0;
  LocalIdentity identity;
  std::string expected_peer_id;  // 16 bytes; empty = any
  int connections = 2;           // for payload, beside one kept for small messages
  bool separate_small_lane = true;
  absl::Duration connect_timeout = absl::Seconds(2);
  Clock* clock = &Clock::Real();
};
// Makes no connection yet.
std::unique_ptr<Channel> MakeRdmaChannel(IoContext* io, const RdmaChannelOptions& options);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_RDMA_RDMA_H_
