// Payload that does not follow its frame in line.
//
// A wire that moves payload beside the socket puts small records into the stream where the payload
// would be: each announces a piece of it, in order, or tells something about the other way.
#ifndef CISTERN_TRANSPORT_PIECE_CARRIER_H_
#define CISTERN_TRANSPORT_PIECE_CARRIER_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cistern::transport {

// The receiving end, as a FrameReader uses it. Used by one thread at a time. Every error ends the
// connection: the peer lied, or what it lent went away.
class PieceCarrier {
 public:
  static constexpr size_t kRecordBytes = 24;

  virtual ~PieceCarrier() = default;
  // Whether the kRecordBytes at `bytes` are a record; else they begin a frame's header.
  virtual bool IsRecord(const uint8_t* bytes) const = 0;
  // Takes a record. *piece_bytes = the payload that it announces, 0 = none. The announced piece is
  // copied or skipped to its end before the next record is handed in.
  virtual absl::Status OnRecord(const uint8_t* record, uint64_t* piece_bytes) = 0;
  // Fills all of `to` with the next bytes of the piece.
  virtual absl::Status Copy(absl::Span<const iovec> to) = 0;
  // Passes over bytes of the piece.
  virtual absl::Status Skip(uint64_t bytes) = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_PIECE_CARRIER_H_
