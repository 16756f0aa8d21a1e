// The gRPC port: the stores' sessions and the admin service.
#ifndef CISTERN_MASTER_CONTROL_GRPC_H_
#define CISTERN_MASTER_CONTROL_GRPC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace cistern::master {

// Promise: one listening port with bounded messages and memory; a silent peer is found by pings.
// The transport is in clear: both services ask for proof of the token themselves. Role: the daemon
// owns it. Thread-safe. Borrows the services until Stop has returned.
class ControlServer {
 public:
  struct Options {
    std::string listen_address = "127.0.0.1";
    uint16_t port = 0;  // 0 = any free one
    absl::Duration handshake_timeout = absl::Seconds(5);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(5);
    // A snapshot's page of 16,384 records has less than 1 MiB; a hello lists namespaces.
    int max_message_bytes = 16 << 20;
    size_t max_memory_bytes = size_t{1} << 30;
  };
  // Unavailable: the port is in use, and which.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const Options& options,
                                                              grpc::Service* sessions,
                                                              grpc::Service* admin);
  ~ControlServer();  // stops

  uint16_t port() const { return port_; }
  // Takes nothing new, lets calls end for `grace`, then cancels them. Idempotent.
  void Stop(absl::Duration grace);

 private:
  ControlServer(std::unique_ptr<grpc::Server> server, uint16_t port);

  std::unique_ptr<grpc::Server> server_;
  const uint16_t port_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_CONTROL_GRPC_H_
