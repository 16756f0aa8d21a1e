// What a connection has to send: frames of several calls, cut into gather lists. Both sides of
// every stream wire use it. No sockets, no time.
//
// Calls take turns frame by frame, so that a short answer waits for one Data frame of each long
// one at most; the frames of one call keep their order.
#ifndef CISTERN_TRANSPORT_SEND_QUEUE_H_
#define CISTERN_TRANSPORT_SEND_QUEUE_H_

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transport/frame.h"
#include "transport/payload.h"

namespace cistern::transport {

// Payload of the Data frames that SendQueue makes; at most kMaxDataFrameBytes.
inline constexpr uint64_t kDataFrameBytes = 1 << 20;

class SendQueue;
struct OutStream;

// What a piece that is to be written is.
enum class PieceKind : uint8_t {
  kHead,            // a frame's header or meta
  kPayload,         // payload
  kCheckedPayload,  // payload of a source that is checked_by_digests()
};

// A frame, a payload, or both.
struct OutItem {
  FrameType type{};
  uint16_t flags = 0;
  std::string meta;
  std::unique_ptr<PayloadSource> source;
  bool payload_in_frame = false;                // else in Data frames after it
  bool data_only = false;                       // no frame of its own: just the Data frames
  bool final_data = false;                      // the last Data frame carries kFlagFinal
  absl::AnyInvocable<void(absl::Status)> sent;  // for the queue's owner to run

  OutStream* stream = nullptr;  // set by Push

 private:
  friend class SendQueue;
  bool head_done_ = false;
  bool truncated_ = false;   // ends with the frame that is under way
  uint64_t frame_left_ = 0;  // payload of the frame under way not prepared yet
  uint64_t end_pos_ = 0;
  // Two, because the first Data frame may be prepared together with the head.
  uint8_t header_[kFrameHeaderBytes];
  uint8_t data_header_[kFrameHeaderBytes];
};

// One call's frames. Lives as long as anything of it is queued.
struct OutStream {
  explicit OutStream(uint64_t request_id) : id(request_id) {}
  uint64_t id;
  // Any byte of it was handed to the wire.
  bool begun = false;
  // Items that are partly or wholly prepared and not yet written.
  int in_flight = 0;
  absl::InlinedVector<std::unique_ptr<OutItem>, 2> items;
  bool ready = false;  // in the queue's line
};

// Not thread-safe. Whoever gets items back from it destroys their sources and runs `sent`.
class SendQueue {
 public:
  // Something to prepare or to write.
  bool empty() const { return next_piece_ == pieces_.size() && line_.empty(); }
  // Meta bytes queued.
  uint64_t queued_meta_bytes() const { return queued_meta_bytes_; }

  void Push(OutStream* stream, std::unique_ptr<OutItem> item);
  // The same, before the other streams' next frames.
  void PushFirst(OutStream* stream, std::unique_ptr<OutItem> item);

  // The next pieces to write, about `max_bytes` (at most kDataFrameBytes); the same until Consume.
  absl::Span<iovec> Prepare(size_t max_bytes);
  // The kinds of what Prepare gave.
  absl::Span<const PieceKind> kinds() const {
    return absl::MakeConstSpan(kinds_).subspan(next_piece_);
  }
  // `n` bytes of them were taken. Moves finished items to `finished`. Of all that was taken the
  // last `unquiet` bytes are still read from where they are: items with payload among them wait.
  void Consume(size_t n, uint64_t unquiet, std::vector<std::unique_ptr<OutItem>>* finished);
  void Consume(size_t n, std::vector<std::unique_ptr<OutItem>>* finished) {
    Consume(n, 0, finished);
  }

  // Drops what of `stream` was not begun into `dropped`. True: a frame is under way; its item comes
  // out of Consume as finished when that frame has ended (stream->in_flight is then 0).
  bool Abort(OutStream* stream, std::vector<std::unique_ptr<OutItem>>* dropped);
  // The connection is gone: everything comes back, what was under way too.
  void Clear(std::vector<std::unique_ptr<OutItem>>* dropped);

 private:
  void Enqueue(OutStream* stream, bool first);
  void PrepareFrom(OutStream* stream, size_t max_bytes, size_t* bytes);
  void StartFrame(OutItem* item);
  void EndFrame(OutStream* stream);
  void AddHead(const void* data, size_t bytes);

  std::vector<iovec> pieces_;
  std::vector<PieceKind> kinds_;  // of pieces_
  size_t next_piece_ = 0;
  std::deque<OutStream*> line_;  // the front one is in the middle of a frame if mid_frame_
  bool mid_frame_ = false;
  uint64_t prepared_pos_ = 0;
  uint64_t written_pos_ = 0;
  uint64_t quiet_pos_ = 0;  // at most written_pos_
  uint64_t queued_meta_bytes_ = 0;
  std::deque<std::unique_ptr<OutItem>> in_flight_;  // wholly prepared, in order of end_pos_
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SEND_QUEUE_H_
