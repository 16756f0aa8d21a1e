// The store's shared-memory wire, as its configuration has it.
#ifndef CISTERN_STORE_SHM_LISTENER_H_
#define CISTERN_STORE_SHM_LISTENER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "transport/shm/shm.h"

namespace cistern::store {

// InvalidArgument: a value that the schema cannot refuse by itself.
absl::Status CheckShmConfig(const config::ShmConfig& config);

// Who may connect, how large rings are, and where the socket is: "store.sock" in `run_dir`, as a
// path that other processes can use.
absl::StatusOr<transport::ShmServerOptions> ShmOptions(const config::ShmConfig& config,
                                                       const std::string& run_dir);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SHM_LISTENER_H_
