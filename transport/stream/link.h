// What differs between the wires that speak frames over a stream socket: how a connection's bytes
// are moved, who is accepted, and where peers are found. The state machines (lane.h,
// server_connection.h) are the same.
#ifndef CISTERN_TRANSPORT_STREAM_LINK_H_
#define CISTERN_TRANSPORT_STREAM_LINK_H_

#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/handshake.pb.h"
#include "transport/piece_carrier.h"
#include "transport/send_queue.h"
#include "transport/stream/socket.h"

namespace cistern::transport {

// Why a link takes no more just now.
enum class LinkBlock {
  kNone,
  kSocket,  // until the socket is writable
  kPeer,    // until the peer has made room; it then tells, and blocked() changes
};

// Moves one connection's bytes. Borrows the socket. Used by one thread at a time.
class StreamLink {
 public:
  virtual ~StreamLink() = default;

  struct Received {
    size_t bytes = 0;
    bool drained = false;  // the socket had no more: wait for an event
  };
  // Fills `pieces` with what is there, never blocking. Unavailable: the peer closed. Other errors:
  // the socket's, or what the peer sent beside its bytes is against the rules (InvalidArgument).
  virtual absl::StatusOr<Received> Read(absl::Span<const iovec> pieces) = 0;
  // Takes from the front of `pieces`, never blocking; *taken = how many of their bytes. `pieces`
  // may be empty: what the link has to say by itself is sent.
  virtual absl::Status Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                             size_t* taken) = 0;
  // Of the last Write.
  virtual LinkBlock blocked() const = 0;
  // The link has bytes of its own to write.
  virtual bool wants_write() const { return false; }
  // Looks at what the device or the peer did meanwhile. At the begin of each turn; may fail as
  // Read.
  virtual absl::Status Progress() { return absl::OkStatus(); }
  // Progress took bytes from the peer that Read has not given yet: no event tells of them again.
  virtual bool has_unread() const { return false; }
  // Says what the link has to say without being asked to Write. At the end of each turn.
  virtual absl::Status Flush() { return absl::OkStatus(); }
  // What the peer has to be told before the end has reached it.
  virtual bool delivered() const { return true; }
  // Of all that Write took: how many of the last bytes are still read from the caller's memory.
  virtual uint64_t unquiet_bytes() const { return 0; }
  // The device may write now to memory that the receiver named.
  virtual bool receiving() const { return false; }
  // After it nothing is read from or written to others' memory. Only where the link has no socket.
  virtual void Close() {}
  // Where the link has no socket: the peer went away while nobody looked.
  virtual bool WentStale() { return false; }

  // An event that is neither: see extra_fd.
  virtual void OnExtraEvent() {}

  // nullptr: payload follows in line. Asked when the handshake is done.
  virtual PieceCarrier* carrier() { return nullptr; }
  virtual PlacingCarrier* placing_carrier() { return nullptr; }
  // Another descriptor whose edges wake the connection; -1 = none. Asked with carrier().
  virtual int extra_fd() const { return -1; }

  // The handshake has succeeded. Serving side: may refuse, and adds to the AuthOk.
  virtual absl::Status OnServerReady(bool /*small_lane*/, wire::AuthOk* /*ok*/) {
    return absl::OkStatus();
  }
  // Calling side.
  virtual absl::Status OnClientReady(const wire::AuthOk& /*ok*/) { return absl::OkStatus(); }
};

// Payload follows its frame on the socket.
class InlineLink final : public StreamLink {
 public:
  explicit InlineLink(int fd) : fd_(fd) {}
  absl::StatusOr<Received> Read(absl::Span<const iovec> pieces) override;
  absl::Status Write(absl::Span<const iovec> pieces, absl::Span<const PieceKind> kinds,
                     size_t* taken) override;
  LinkBlock blocked() const override { return blocked_ ? LinkBlock::kSocket : LinkBlock::kNone; }

 private:
  const int fd_;
  bool blocked_ = false;
};

// Makes a connection of a wire without sockets. Used by one thread at a time.
class LinkDialer {
 public:
  virtual ~LinkDialer() = default;
  // Readable when Advance has something to do; later, when the link has. Goes with dialer and link.
  virtual int fd() const = 0;
  // True: connected. Unavailable: not to be reached.
  virtual absl::StatusOr<bool> Advance() = 0;
  // When it is.
  virtual std::unique_ptr<StreamLink> TakeLink() = 0;
};

// A connection that a wire without sockets has accepted.
struct AcceptedLink {
  std::unique_ptr<StreamLink> link;
  std::string address;
};

// What a loop of a server has of a wire without sockets. The loop thread's, except WakeFrom.
class LoopPart {
 public:
  virtual ~LoopPart() = default;
  // Readable when a link has something to do.
  virtual int fd() const = 0;
  virtual void OnReadable() = 0;
  // `woken` runs (on the loop thread, in OnReadable) when `link`, accepted for this part, has
  // something to do; `cut` (from any thread) when its peer is gone. Until Detach.
  virtual void Attach(StreamLink* link, std::function<void()> woken, std::function<void()> cut) = 0;
  virtual void Detach(StreamLink* link) = 0;
};

// A wire's say in its server. Thread-safe; outlives the server's connections.
class ServerWire {
 public:
  virtual ~ServerWire() = default;
  virtual std::string name() const = 0;  // "tcp"
  // A peer has connected. *address = what people call it. An error refuses it: it is told why.
  virtual absl::Status OnAccepted(int fd, const SocketAddress& peer, std::string* address) = 0;
  virtual std::unique_ptr<StreamLink> MakeLink(int fd) = 0;

  // Wires without sockets: the listening descriptor is the wire's, and these do the rest.
  virtual bool has_sockets() const { return true; }
  virtual absl::StatusOr<std::unique_ptr<LoopPart>> MakeLoopPart() { return nullptr; }
  // The next connection, for the loop that has `part`. With `full` it is refused. NotFound: none
  // waits. Others: one came and was refused.
  virtual absl::StatusOr<AcceptedLink> Accept(LoopPart*, bool /*full*/) {
    return absl::NotFoundError("");
  }
  // None comes any more. Accept is called on, for what its descriptor tells beside.
  virtual void StopListening() {}
};

// A wire's say in a channel. Thread-safe.
class ClientWire {
 public:
  virtual ~ClientWire() = default;
  virtual std::string name() const = 0;
  // Where the channel leads: for people.
  virtual std::string address() const = 0;
  // The addresses to try. Not `may_block`: NotFound where that would take time.
  virtual absl::StatusOr<std::vector<SocketAddress>> Resolve(bool may_block) = 0;
  // `write_soon` makes the connection call Write though nothing of its own is queued; from any
  // thread, also after the link is gone.
  virtual std::unique_ptr<StreamLink> MakeLink(int fd, std::function<void()> write_soon) = 0;
  // Wires without sockets make a dialer in place of socket and link.
  virtual bool has_sockets() const { return true; }
  virtual absl::StatusOr<std::unique_ptr<LinkDialer>> Dial(const SocketAddress&) { return nullptr; }
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_STREAM_LINK_H_
