// The two ends of one ring: a window of `ring_bytes` over a stream of payload bytes.
//
// A byte's place in the ring is its position in the stream modulo the ring's size. Pieces that are
// read from lent memory instead pass over their place: so they count against the window too, and a
// cancel never waits for more than a window of bytes.
//
// Everything in shared memory may be changed by the other side at any time: each value is read
// once and checked; what was copied out is all that is looked at.
#ifndef CISTERN_TRANSPORT_SHM_RING_H_
#define CISTERN_TRANSPORT_SHM_RING_H_

#include <sys/uio.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/shm/format.h"

namespace cistern::transport {

// Borrow the memory. Used by one thread at a time.
class RingSender {
 public:
  RingSender(RingCounters* counters, char* ring, uint64_t ring_bytes)
      : counters_(*counters), ring_(ring), ring_bytes_(ring_bytes) {}

  uint64_t sent() const { return sent_; }
  // Bytes that may be put now. InvalidArgument: the receiver says that it took what was not sent.
  absl::StatusOr<uint64_t> Room();
  // Copies into the ring. Precondition: Room() allows it.
  void Put(const void* data, uint64_t bytes);
  // The same for bytes that are read elsewhere.
  void Pass(uint64_t bytes) { sent_ += bytes; }
  // Asks to be woken when half of the ring is free. True: it is already, go on.
  bool AskToBeWoken();

 private:
  RingCounters& counters_;
  char* const ring_;
  const uint64_t ring_bytes_;
  uint64_t sent_ = 0;
  uint64_t released_ = 0;  // the last that was read
};

class RingReceiver {
 public:
  RingReceiver(RingCounters* counters, const char* ring, uint64_t ring_bytes)
      : counters_(*counters), ring_(ring), ring_bytes_(ring_bytes) {}

  uint64_t taken() const { return taken_; }
  // Copies the next bytes of the stream out of the ring and gives their room back.
  void Take(absl::Span<const iovec> to);
  // The same for bytes that were had elsewhere, or that nobody wants.
  void Pass(uint64_t bytes);
  // The next bytes of the stream where they are, at most `max` in one stretch. Then Pass.
  absl::Span<const char> Peek(uint64_t max) const;
  // Once for each time that the sender has to be woken.
  bool TakeWake();

 private:
  void Release();
  RingCounters& counters_;
  const char* const ring_;
  const uint64_t ring_bytes_;
  uint64_t taken_ = 0;
  uint64_t served_ = 0;  // the wake_at that was answered last
  bool wake_ = false;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_RING_H_
