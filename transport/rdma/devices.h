// Which RDMA devices this host has.
#ifndef CISTERN_TRANSPORT_RDMA_DEVICES_H_
#define CISTERN_TRANSPORT_RDMA_DEVICES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "transport/rdma/device.h"

namespace cistern::transport::rdma {

// All devices, by name, with their ports as they are now; each is opened and closed again, which
// takes milliseconds (on the loop thread of a daemon: don't). A device that cannot be opened is in
// the list with its reason. Empty where there is none; Unavailable where libibverbs or librdmacm is
// missing (LoadVerbs of verbs.h). Thread-safe.
absl::StatusOr<std::vector<Device>> ListDevices();

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_DEVICES_H_
