#include "transport/stream/link.h"

#include <cerrno>

#include "base/status.h"

namespace cistern::transport {

absl::StatusOr<StreamLink::Received> InlineLink::Read(absl::Span<const iovec> pieces) {
  size_t room = 0;
  for (const iovec& piece : pieces) room += piece.iov_len;
  const ssize_t n = ReadPieces(fd_, pieces);
  if (n < 0 && errno == EAGAIN) return Received{0, true};
  if (n < 0) return ErrnoStatus(errno, "read");
  if (n == 0) return absl::UnavailableError("the peer closed it");
  // A short read has emptied the socket.
  return Received{static_cast<size_t>(n), static_cast<size_t>(n) < room};
}

absl::Status InlineLink::Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind>,
                               size_t* taken) {
  *taken = 0;
  blocked_ = false;
  if (pieces.empty()) return absl::OkStatus();
  size_t wanted = 0;
  for (const iovec& piece : pieces) wanted += piece.iov_len;
  const ssize_t sent = WritePieces(fd_, pieces);
  if (sent < 0 && errno == EAGAIN) {
    blocked_ = true;
    return absl::OkStatus();
  }
  if (sent < 0) return ErrnoStatus(errno, "write");
  *taken = static_cast<size_t>(sent);
  blocked_ = *taken < wanted;
  return absl::OkStatus();
}

}  // namespace cistern::transport
