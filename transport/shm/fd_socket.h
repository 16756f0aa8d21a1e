// Reads and writes on a UNIX stream socket that carry file descriptors along.
#ifndef CISTERN_TRANSPORT_SHM_FD_SOCKET_H_
#define CISTERN_TRANSPORT_SHM_FD_SOCKET_H_

#include <sys/uio.h>

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/shm/owned_fd.h"

namespace cistern::transport {

inline constexpr size_t kMaxFdsPerMessage = 2;

struct FdRead {
  size_t bytes = 0;  // 0: nothing is there now
  bool drained = false;
};
// Reads what is there and appends the descriptors that came with it, at most `max_fds` in one
// message (0 to kMaxFdsPerMessage). Unavailable: the peer closed, or this process has no descriptor
// left for what came. InvalidArgument: more came.
absl::StatusOr<FdRead> ReadWithFds(int socket, absl::Span<const iovec> pieces, size_t max_fds,
                                   std::vector<OwnedFd>* fds);

// Writes what the socket takes: the bytes' number, 0 when it takes none now (then `fds` have not
// left either). At most kMaxFdsPerMessage descriptors, which stay the caller's.
absl::StatusOr<size_t> WriteWithFds(int socket, absl::Span<const iovec> pieces,
                                    absl::Span<const int> fds);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_FD_SOCKET_H_
