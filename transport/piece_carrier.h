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
#include "absl/status/statusor.h"
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
  // Where the next bytes of the piece are, at most `max` of them in one stretch, until Skip or
  // Copy. The peer may change them at any time. Empty: only Copy reaches them.
  virtual absl::Span<const char> Peek(size_t /*max*/) { return {}; }
};

// The receiving end of a wire whose device fills memory by itself (rdma), as a FrameReader uses it.
// Records in the stream announce payload; the reader says where it goes, and hears when it is
// there. All in the order of the stream. Used by one thread at a time. Every error ends the
// connection.
class PlacingCarrier {
 public:
  static constexpr size_t kRecordBytes = 24;

  virtual ~PlacingCarrier() = default;
  virtual bool IsRecord(const uint8_t* bytes) const = 0;
  struct Announced {
    uint64_t bytes = 0;  // at least 1
    bool raw = false;    // they follow in the stream
  };
  // Whether the payload that a record announces follows it in the stream.
  virtual bool IsRaw(const uint8_t* record) const = 0;
  // What a record announces. Of payload that is not raw the carrier keeps account until Take.
  virtual absl::StatusOr<Announced> OnRecord(const uint8_t* record) = 0;
  // Announced bytes behind those that have a place.
  virtual uint64_t unplaced_bytes() const = 0;
  // Bytes that have a place, and were not taken.
  virtual uint64_t placed_bytes() const = 0;
  // The next unplaced bytes go to `to`, which may be less than all and not more. Returns how many
  // of them could be placed now. The memory must stay until they were taken or the link is closed.
  virtual absl::StatusOr<uint64_t> Place(absl::Span<const iovec> to) = 0;
  // Place could not place all that it was given, and could go on now.
  virtual bool can_place_again() const = 0;
  // Nobody wants the next unplaced bytes.
  virtual void PassOver(uint64_t bytes) = 0;
  struct Arrived {
    uint64_t bytes = 0;
    bool wanted = false;
  };
  // What at the front of the placed bytes is in its place now.
  virtual Arrived arrived() const = 0;
  virtual void Take(uint64_t bytes) = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_PIECE_CARRIER_H_
