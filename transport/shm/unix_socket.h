// UNIX stream sockets at a path of any length.
#ifndef CISTERN_TRANSPORT_SHM_UNIX_SOCKET_H_
#define CISTERN_TRANSPORT_SHM_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "transport/shm/owned_fd.h"
#include "transport/stream/socket.h"

namespace cistern::transport {

// Where to connect for the socket at `path`. A path too long for a socket address is reached
// through an open descriptor of its folder, which the address keeps. NotFound never; Unavailable:
// there is no such folder.
absl::StatusOr<SocketAddress> UnixAddress(const std::string& path);

// Listens at `path`, with `mode`. What a dead process left there is replaced; Unavailable: a live
// one listens there, or the folder does not allow it.
absl::StatusOr<OwnedFd> ListenUnix(const std::string& path, mode_t mode);

// Removes the file at `path` if it is the socket that `inode` was.
void RemoveUnixSocket(const std::string& path, ino_t inode);
// 0: there is none.
ino_t InodeOf(const std::string& path);

// Who is at the other end, as the kernel knows.
struct PeerCredentials {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
};
absl::StatusOr<PeerCredentials> CredentialsOf(int socket);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_UNIX_SOCKET_H_
