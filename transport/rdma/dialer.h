// Connects to a store by rdma_cm.
#ifndef CISTERN_TRANSPORT_RDMA_DIALER_H_
#define CISTERN_TRANSPORT_RDMA_DIALER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "transport/rdma/host.h"
#include "transport/stream/link.h"
#include "transport/stream/socket.h"

namespace cistern::transport::rdma {

// Begins: address, route and connection are resolved and made step by step, in Advance.
absl::StatusOr<std::unique_ptr<LinkDialer>> Dial(std::shared_ptr<Host> host,
                                                 const SocketAddress& address);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_DIALER_H_
