// The shared-memory wire: clients and stores on one host. Control over a UNIX socket, payload
// through memory. Nobody is handed a segment, and a store never writes to a client's memory.
#ifndef CISTERN_TRANSPORT_SHM_SHM_H_
#define CISTERN_TRANSPORT_SHM_SHM_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/server.h"
#include "transport/shm/lent_memory.h"

namespace cistern::transport {

struct ShmServerOptions {
  std::string socket_path;
  // Who may connect, by SO_PEERCRED: one of these users, or of these groups (the process's primary
  // group). Both empty: this process's own user and group.
  std::vector<uid_t> allowed_uids = {};
  std::vector<gid_t> allowed_gids = {};
  uint64_t ring_bytes = 2 << 20;  // each way of each connection
  // Rings of all connections; one that finds no more moves its payload through the socket.
  uint64_t max_mapped_bytes = uint64_t{2} << 30;
  // Lent memory that is mapped, of all connections, and a quarter of it of each; the rest is read
  // by pread. It costs nothing but page tables: 2 MiB a GiB.
  uint64_t max_lent_mapped_bytes = uint64_t{1} << 40;
  int io_threads = 2;
  ServerLimits limits = {};
  LocalIdentity identity = {};
  Clock* clock = &Clock::Real();
};
// Starts listening. `handler` must outlive the server. address() is "unix:PATH", port() 0. The
// socket's file goes with the server. Unavailable: another process listens there, or the folder
// does not allow it. InvalidArgument: the ring's size.
absl::StatusOr<std::unique_ptr<WireServer>> ListenShm(const ShmServerOptions& options,
                                                      RequestHandler* handler);

struct ShmChannelOptions {
  std::string socket_path;
  LocalIdentity identity = {};
  std::string expected_peer_id = {};  // 16 bytes; empty = any
  int connections = 2;                // for payload, beside one kept for small messages
  bool separate_small_lane = true;
  absl::Duration connect_timeout = absl::Seconds(2);
  // Memory that the store may read where it is; null = none.
  std::shared_ptr<LentMemory> lent = nullptr;
  Clock* clock = &Clock::Real();
};
// Makes no connection yet. Calls end with PermissionDenied where the store does not let this
// process's user or group in.
std::unique_ptr<Channel> MakeShmChannel(IoContext* io, const ShmChannelOptions& options);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_SHM_H_
