// The calling side of every wire.
//
// A Channel reaches one peer over one wire. Calls are started on it and driven by whoever waits:
// IoContext::Wait() lets the waiting thread do its own socket reads, writes and verification; the
// context's single I/O thread drives what nobody waits for. A connection with no call pending is
// not watched at all, so a synchronous caller never hands work to another thread.
//
// Deadlines and cancel: every call ends at the latest kCancelGrace + 50 ms after its deadline.
// At the deadline (or on Cancel) the channel stops sending payload at the next frame end, sends a
// Cancel frame and waits for its answer for kCancelGrace; without one it closes the connection.
// Only then OnDone runs, so after OnDone no byte lands in or is read from the caller's memory.
#ifndef CISTERN_TRANSPORT_CHANNEL_H_
#define CISTERN_TRANSPORT_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "transport/frame.h"
#include "transport/identity.h"
#include "transport/payload.h"

namespace cistern::transport {

inline constexpr absl::Duration kCancelGrace = absl::Milliseconds(100);

// A status payload under this URL marks a failed call of which no byte had left: it can be repeated
// without a second thought.
inline constexpr char kNeverSentUrl[] = "type.cistern/never-sent";
bool NeverSent(const absl::Status& status);

class CallGroup;
class GroupState;

// What a started call does with its answer. Methods run on the thread that drives the connection,
// one at a time per call, never with a lock of the channel held. Owned by the caller; must live
// until OnDone has returned.
class CallHandler {
 public:
  virtual ~CallHandler() = default;

  struct Answer {
    FrameType type;
    bool final;
    std::string_view meta;   // valid during OnFrame
    uint64_t payload_bytes;  // of this frame
  };
  // A frame of the answer. If payload_bytes > 0, set *sink to where it goes (nullptr discards it);
  // the sink may be the same for all frames of the stream and is borrowed until the next OnFrame
  // or OnDone. OnFrame runs when the meta has arrived, before the frame's payload. To send the
  // request's payload now (after PutReady), set *source. An error ends the call and closes the
  // connection.
  virtual absl::Status OnFrame(const Answer& answer, PayloadSink** sink,
                               std::unique_ptr<PayloadSource>* source) = 0;
  // The end, exactly once per started call. OK: a final frame was handled. ErrorReply frames come
  // here as their status, without OnFrame. Unavailable: no connection could be made, or it broke
  // (`Unavailable` with payload type.cistern/never-sent when no byte of the request had left);
  // DeadlineExceeded, Cancelled: as they say.
  virtual void OnDone(absl::Status status) = 0;
};

struct CallSpec {
  FrameType type{};
  std::string meta;
  std::unique_ptr<PayloadSource> payload;    // sent in the request's own frame
  MonoTime deadline = MonoTime::Infinite();  // infinite is refused: InvalidArgument
  // Use the connection that is kept for small messages.
  bool small = false;
  // Payload bytes expected back: balances connections.
  uint64_t expected_bytes = 0;
  // End with Unavailable at the first failed attempt to connect, instead of waiting for a
  // connection until the deadline: for calls that have another replica to turn to.
  bool fail_fast = false;
};

struct ChannelStats {
  uint64_t connections = 0;
  uint64_t reconnects = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t inflight_bytes = 0;
};

// Thread-safe. Destroying it closes its connections and cancels its calls (their OnDone has run
// when the destructor returns). Not to be destroyed from a callback of its own calls.
class Channel {
 public:
  virtual ~Channel() = default;

  // Starts a call as part of `group` (see IoContext::Wait). Writes what the socket takes at once;
  // never blocks. `handler` may be called back, even ended, before Start returns.
  // Connections are made when first needed, in the background, within the call's deadline, and
  // again after they broke (10 ms to 500 ms back-off with full jitter).
  virtual void Start(CallSpec spec, CallHandler* handler, CallGroup* group) = 0;

  // A new connection is prepared by this before it carries calls: called with a function that runs
  // one small call on that very connection. Used to bind namespaces. Set before the first Start.
  // The preamble's frames precede all others on each connection, in order, replayed at reconnect.
  struct Preamble {
    FrameType type;
    std::string meta;
    // Sees the answer's frame, per connection; an error closes the connection.
    std::function<absl::Status(uint64_t connection, FrameType type, std::string_view meta)>
        on_answer;
  };
  // Adds a preamble to every connection, present and future. Calls started after AddPreamble
  // returns are sent behind it.
  virtual void AddPreamble(Preamble preamble) = 0;

  // Empty before the first handshake.
  virtual PeerInfo peer() const = 0;
  virtual ChannelStats stats() const = 0;
  // The last reason for which no connection could be made; OK when connected.
  virtual absl::Status last_error() const = 0;
  // The process's fork child: forget every socket without touching the peer's state.
  virtual void AbandonAfterFork() = 0;
};

// A set of calls that somebody waits for together. Further calls may be started while some are
// pending (from OnFrame and OnDone too). Without on_idle its owner must call IoContext::Wait, which
// then drives the calls; they may not progress (nor time out) before. With on_idle the I/O thread
// drives them while nobody waits. Thread-safe.
class CallGroup {
 public:
  CallGroup();
  // `on_idle` runs on the thread that ends the last pending call, after its OnDone and after
  // pending() became 0: it must own what it uses (the group may be gone, Wait may have returned),
  // and may destroy the group.
  explicit CallGroup(absl::AnyInvocable<void()> on_idle);
  // Precondition: pending() == 0.
  ~CallGroup();
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;
  // Calls that have been started and not ended.
  int pending() const;
  // Cancels every pending call. OnDone follows within kCancelGrace + 50 ms.
  void Cancel();
  // Makes every IoContext::WaitUntil for this group look at its condition again.
  void WakeWaiters();

 private:
  friend class GroupState;
  const std::shared_ptr<GroupState> state_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_CHANNEL_H_
