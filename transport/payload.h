// A call carries at most one payload stream each way: a linear sequence of bytes with scattered
// memory at both ends. The wire moves it; these two interfaces say where the bytes are.
// On tcp the stream follows the frames in line; on shm it goes through memory that both map;
// one-sided wires map stream positions to the peer's spans.
#ifndef CISTERN_TRANSPORT_PAYLOAD_H_
#define CISTERN_TRANSPORT_PAYLOAD_H_

#include <sys/uio.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace cistern::transport {

// Where outgoing bytes are. Used by one thread at a time. The wire owns a source from the moment
// it is handed over until the call ends, then destroys it (so a source may hold refcounts).
class PayloadSource {
 public:
  virtual ~PayloadSource() = default;
  // Bytes that the stream still has to give after what NextPieces() returned so far.
  virtual uint64_t remaining() const = 0;
  // Appends the next pieces, at most `max_bytes` and `max_pieces`, in stream order; the position
  // moves on. The memory stays valid and unchanged until the source is destroyed. A producer may
  // compute (digest) what it returns here: it is asked in pieces that fit the cache.
  // Precondition: remaining() > 0. Gives at least one byte.
  virtual void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) = 0;
  // The receiver checks all of it against digests in the same stream. A wire may then let the peer
  // read it where it is (AllocateBuffer's memory), which may be late where the call was given up:
  // what was overwritten meanwhile does not pass.
  virtual bool checked_by_digests() const { return false; }
  // Memory of its own that it holds beside the payload. Servers count it towards what one
  // connection's unread answers may take.
  virtual size_t memory_bytes() const { return 0; }
};

// Where incoming bytes go. Used by one thread at a time.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // Appends the next buffers to fill, at most `max_bytes` and `max_pieces`, in stream order. Does
  // not move the position: Landed() does. The memory stays valid until Landed() has covered it or
  // the call has ended. Nothing appended = no more is expected: the wire treats further bytes as
  // a protocol error.
  virtual void NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) = 0;
  // `bytes` more have arrived in those buffers, in order. A sink verifies here, while the bytes
  // are in the cache. An error ends the call (and costs the connection).
  virtual absl::Status Landed(size_t bytes) = 0;
  // The next bytes of the stream lie at `from`, in memory that the peer may change meanwhile. A
  // sink that digests what lands copies them to their place itself, in the pass that digests them,
  // and reads each byte once. *taken = how many of them it has so dealt with, position moved on and
  // all; 0: these go by NextBuffers and Landed. An error is as of Landed.
  virtual absl::Status TakeFrom(const char* /*from*/, size_t /*bytes*/, size_t* taken) {
    *taken = 0;
    return absl::OkStatus();
  }
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_PAYLOAD_H_
