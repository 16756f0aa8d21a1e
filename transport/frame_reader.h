// Takes frames out of a byte stream: header, meta, then payload straight into the receiver's
// buffers. Both sides of every stream wire use it. No sockets, no time.
#ifndef CISTERN_TRANSPORT_FRAME_READER_H_
#define CISTERN_TRANSPORT_FRAME_READER_H_

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/frame.h"
#include "transport/piece_carrier.h"

namespace cistern::transport {

// Options::head_bytes of connections kept for small messages: a lookup of a thousand keys in one
// read.
inline constexpr size_t kSmallLaneHeadBytes = 32 << 10;

// What a FrameReader tells its connection. An error from any of these ends the connection.
class FrameReceiver {
 public:
  virtual ~FrameReceiver() = default;
  enum class Take {
    kBuffers,  // the bytes go where `out` says
    kDiscard,  // nobody wants them
    kPause,    // the receiver is not ready: ask again when Resume() is called
  };
  // May this frame come now? false pauses the reader. Asked before its meta is there, and again.
  virtual bool ReadyForFrame(const FrameHeader& header) = 0;
  // A header within the limits and its meta, whose checksum is right; `meta` is valid during the
  // call.
  virtual absl::Status OnFrame(const FrameHeader& header, std::string_view meta) = 0;
  // Where the next payload bytes of the frame go: at least one byte with kBuffers.
  virtual Take PayloadBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out,
                              absl::Status* error) = 0;
  // `bytes` of those buffers were filled.
  virtual absl::Status PayloadLanded(size_t bytes) = 0;
  // The next payload bytes of the frame are at `from`, in memory that the peer may change. *taken =
  // how many the receiver has copied from there to where they belong, as if PayloadLanded had been
  // told; 0: ask PayloadBuffers.
  virtual absl::Status PayloadAt(const char* /*from*/, size_t /*bytes*/, size_t* taken) {
    *taken = 0;
    return absl::OkStatus();
  }
  virtual absl::Status OnFrameEnd() = 0;
};

// Memory: a head buffer of Options::head_bytes, grown as a longer meta arrives (never ahead of its
// bytes), up to header + max_meta_bytes. Not thread-safe.
class FrameReader {
 public:
  struct Options {
    uint32_t max_meta_bytes = 0;
    uint64_t max_payload_bytes = 0;
    // How much a read takes where a header may come. The payload behind a header that came with it
    // is copied; all other payload is not.
    size_t head_bytes = 8 << 10;
    // How much payload one read takes: what fits the cache while the receiver digests it.
    size_t payload_read_bytes = 256 << 10;
  };
  FrameReader(const Options& options, FrameReceiver* receiver)
      : options_(options), receiver_(*receiver) {}

  // The limits change when the handshake is done.
  void SetLimits(uint32_t max_meta_bytes, uint64_t max_payload_bytes);
  void SetHeadBytes(size_t head_bytes) { options_.head_bytes = head_bytes; }
  // From the next frame on payload comes by records. Borrowed.
  void SetCarrier(PieceCarrier* carrier) { carrier_ = carrier; }
  // The same, of the other kind.
  void SetPlacingCarrier(PlacingCarrier* carrier) { placing_ = carrier; }

  // Where the next read goes: nothing while paused. The same until Advance.
  absl::Status NextRead(std::vector<iovec>* out);
  // A read put `bytes` there. Hands on what is complete.
  absl::Status Advance(size_t bytes);
  // Goes on after a pause, with what had been read already.
  absl::Status Resume();

  // With a carrier: pieces were announced that wait to be copied. An Advance, Resume or Continue
  // copies about kTurnPieceBytes of them; until there are none, call Continue instead of reading.
  static constexpr uint64_t kTurnPieceBytes = 1 << 20;
  // With a placing carrier: payload has arrived.
  bool has_pieces() const {
    return has_pieces_ || (placing_ != nullptr && !paused_ && payload_left_ > 0 &&
                           (placing_->arrived().bytes > 0 || placing_->can_place_again()));
  }
  absl::Status Continue();
  // Payload bytes that came in pieces so far.
  uint64_t piece_bytes_taken() const { return piece_bytes_taken_; }

  bool paused() const { return paused_; }
  // With a placing carrier: nothing can be read before payload has arrived.
  bool waits() const { return waits_for_place_; }
  // In the middle of a frame, by the peer's doing.
  bool mid_frame() const { return in_frame_ || tail_ > head_; }

 private:
  enum class ReadKind { kHead, kPayload, kScratch };
  absl::Status Parse();
  // Of the payload at the front of the buffer. True: some was taken.
  absl::Status TakeBuffered(bool* progress);
  absl::Status ParseFrame(bool* progress);
  // With a carrier: a record at the front of the buffer.
  absl::Status TakeRecord(bool* progress);
  absl::Status TakePiece(bool* progress);
  void PieceTaken(size_t bytes);
  // With a placing carrier: one step of a frame's payload.
  absl::Status StepPlaced(bool* progress);
  absl::Status TakeAnnouncement(bool* progress);
  absl::Status TakeArrived(bool* progress);
  absl::Status PlaceMore(bool* progress);
  void EnsureRoom(size_t bytes);

  Options options_;
  FrameReceiver& receiver_;
  std::vector<uint8_t> buffer_;
  size_t head_ = 0;  // [head_, tail_) is read and not handed on
  size_t tail_ = 0;
  uint64_t payload_left_ = 0;
  bool in_frame_ = false;
  bool paused_ = false;
  ReadKind read_kind_ = ReadKind::kHead;
  size_t payload_offered_ = 0;
  std::vector<iovec> iov_;

  PieceCarrier* carrier_ = nullptr;
  uint64_t piece_left_ = 0;  // of the piece announced last
  uint64_t turn_left_ = 0;   // may still be copied before others have their turn
  bool has_pieces_ = false;
  uint64_t piece_bytes_taken_ = 0;

  PlacingCarrier* placing_ = nullptr;
  uint64_t raw_left_ = 0;         // of payload that follows in the stream
  bool waits_for_place_ = false;  // what is buffered is behind payload that is on its way
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FRAME_READER_H_
