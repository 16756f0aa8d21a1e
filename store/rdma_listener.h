// The store's RDMA wire, as its configuration has it: devices, the segments' memory on them, and a
// server that lets nobody reach into that memory.
#ifndef CISTERN_STORE_RDMA_LISTENER_H_
#define CISTERN_STORE_RDMA_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "transport/rdma/host.h"
#include "transport/rdma/rdma.h"
#include "transport/server.h"

namespace cistern::store {

// InvalidArgument: a value that the schema cannot refuse by itself.
absl::StatusOr<transport::rdma::HostOptions> RdmaHostOptions(const config::RdmaConfig& config);

// How its loops wait for completions.
transport::Polling RdmaPolling(const config::RdmaConfig& config);

// The devices to use; null where there are none or none is to be used, which *why and one line of
// the log say: the other wires serve.
std::shared_ptr<transport::rdma::Host> OpenRdmaHost(const config::RdmaConfig& config,
                                                    bool has_token, std::string* why);

// Registers a segment's memory with the devices, on a thread of its own: that takes a second for
// some gigabytes. Until it is done, and where it fails (the log says why), RDMA copies what lies
// there. The result, which may be null, has to go before the memory does.
std::shared_ptr<void> RegisterSegment(std::shared_ptr<transport::rdma::Host> host,
                                      const std::string& name, char* base, uint64_t bytes);

// Listens on every port in use, by the number of options.port if that is free. Null where it
// cannot, which *why and the log say.
std::unique_ptr<transport::WireServer> ListenOnRdma(transport::RdmaServerOptions options,
                                                    transport::RequestHandler* handler,
                                                    std::string* why);

}  // namespace cistern::store

#endif  // CISTERN_STORE_RDMA_LISTENER_H_
