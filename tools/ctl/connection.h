// How a tool finds the pool: from flags, an endpoints file or a client configuration.
#ifndef CISTERN_TOOLS_CTL_CONNECTION_H_
#define CISTERN_TOOLS_CTL_CONNECTION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace cistern::ctl {

inline constexpr char kDefaultGrpcPort[] = "7601";
inline constexpr char kDefaultDataPort[] = "7600";

// As typed; empty = not given.
struct ConnectionFlags {
  std::string master = {};  // HOST:PORT of the master's gRPC
  std::string data = {};    // HOST:PORT of the master's data port
  std::string token_file = {};
  std::string endpoints = {};  // the master's endpoints.json
  std::string config = {};     // a client's TOML file
};

struct Connection {
  std::string master;
  std::string data;
  std::string token_file;  // empty = the pool has no token
  std::string pool_id;     // 16 bytes; empty = not known yet
  // From a client's configuration file; without one the library's own defaults.
  std::string wire = "auto";
  uint32_t connections_per_store = 0;  // 0 = the default
  uint64_t deadline_ms = 0;            // 0 = the default
  RdmaOptions rdma = {};
};

// What a daemon writes into its run_dir when it is ready.
struct Endpoints {
  std::string kind;  // "master" or "store"
  int64_t pid = 0;
  std::string id;       // hex
  std::string pool_id;  // hex
  std::string data;     // HOST:PORT
  std::string grpc;     // HOST:PORT; masters
  std::string http;     // HOST:PORT; "" = none
};
// InvalidArgument: not the JSON of a daemon.
absl::StatusOr<Endpoints> ParseEndpoints(const std::string& json);
// NotFound: not there (yet).
absl::StatusOr<Endpoints> ReadEndpointsFile(const std::string& path);

// The most special wins: a flag, then the endpoints file, then the configuration, then the default
// ports on this host. Given only one of the two addresses, the other is the default port on its
// host. Errors name the flag or file that is wrong.
absl::StatusOr<Connection> ResolveConnection(const ConnectionFlags& flags);

// "HOST:PORT" or "[IPv6]:PORT" in two; InvalidArgument otherwise.
struct HostPort {
  std::string host;
  std::string port;
};
absl::StatusOr<HostPort> SplitHostPort(const std::string& address);
std::string JoinHostPort(const std::string& host, const std::string& port);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_CONNECTION_H_
