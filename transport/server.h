// The serving side of every wire: a wire accepts peers, does the handshake, reads request frames
// and gives each to a RequestHandler as a ServerCall. Limits are enforced before memory is spent.
//
// Threads: a connection belongs to one loop thread of its wire; OnRequest and every callback of
// its calls run there and must not block. Answers may be given from any thread.
#ifndef CISTERN_TRANSPORT_SERVER_H_
#define CISTERN_TRANSPORT_SERVER_H_

#include <cstdint>
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

// One peer's connection as a handler sees it. Alive while any of its calls is.
class ServerConnection {
 public:
  virtual ~ServerConnection() = default;
  virtual const PeerInfo& peer() const = 0;
  // Unique in the process.
  virtual uint64_t id() const = 0;
  // Ends the connection soon. From any thread; neither blocks nor calls back. Wires whose peers are
  // in this process need not do it.
  virtual void Cut(const absl::Status&) {}
  // The handler's own state for this connection (namespace refs). Loop thread only.
  std::shared_ptr<void> user_state;
};

// One request. The handler owns it and must end it: by a final Reply, by Fail, or by letting it go
// out of scope (which answers Internal). Replies on a closed connection are dropped silently.
class ServerCall {
 public:
  virtual ~ServerCall() = default;

  virtual FrameType type() const = 0;
  // Valid as long as the call.
  virtual std::string_view meta() const = 0;
  virtual MonoTime received_at() const = 0;
  virtual ServerConnection& connection() = 0;
  // Payload bytes that came in the request's own frame, not read yet.
  virtual uint64_t inline_payload_bytes() const = 0;

  // Receives exactly `bytes` of payload: first what came in line, the rest from the Data frames
  // that the peer sends after a non-final Reply. `sink` must outlive `done`. `done` runs once, on
  // the loop thread: OK when all has landed, else why it never will (peer gone, cancelled,
  // stalled, the sink's error). May be called again after `done` (or in it) for the next stretch.
  // While payload waits for its receiver the connection is not read, so call it soon; payload that
  // is left when the call ends is discarded. 0 bytes: `done` runs at once.
  virtual void ReceivePayload(uint64_t bytes, PayloadSink* sink,
                              absl::AnyInvocable<void(absl::Status)> done) = 0;

  // Sends one frame of the answer. With `payload` the stream follows: in the frame itself when
  // `final` and at most kInlinePayloadBytes, else in Data frames (of a `final` Reply the last Data
  // frame then carries the flag). A `final` Reply ends the call for the handler at once.
  // A non-final Reply with a payload must be followed by another Reply, which the wire sends after
  // the payload. `sent` (may be null) runs once on the loop thread when the payload has left or
  // never will; the source is destroyed just before.
  virtual void Reply(FrameType type, std::string meta, bool final,
                     std::unique_ptr<PayloadSource> payload = nullptr,
                     absl::AnyInvocable<void(absl::Status)> sent = nullptr) = 0;

  // When the caller's own patience for this call ends. A transfer of it (either way) that still
  // runs `stall_timeout` later ends the connection, however steadily it drips: an honest caller has
  // cancelled by then, and what the call holds must not depend on a peer's good will. Wires whose
  // peers are in this process need not do it.
  virtual void SetDeadline(MonoTime) {}

  // Ends the call with an ErrorReply; what was replied before is sent first.
  virtual void Fail(const absl::Status& status) = 0;

  // Ends the connection: what the peer sent breaks the protocol. Counted.
  virtual void ProtocolError(const absl::Status& why) = 0;

  // Runs at most once on the loop thread when the call ends early from outside: peer gone or
  // cancelled. The transport answers a cancel itself. Not called after a final Reply or Fail.
  virtual void OnAbort(absl::AnyInvocable<void(absl::Status)> fn) = 0;
  virtual bool aborted() const = 0;

  // Runs `fn` on the connection's loop thread, soon. From any thread. `fn` is destroyed unrun when
  // the server has stopped.
  virtual void Post(absl::AnyInvocable<void()> fn) = 0;
};

// Implemented by the master and the store. Called on loop threads, several at a time for several
// connections.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  virtual void OnRequest(std::unique_ptr<ServerCall> call) = 0;
  // After the handshake / after the last call of the connection was aborted.
  virtual void OnConnected(ServerConnection&) {}
  virtual void OnDisconnected(ServerConnection&) {}
};

struct ServerLimits {
  uint32_t max_connections = 10'000;
  uint32_t max_meta_bytes = kMaxMetaBytesTcp;
  uint32_t max_keys = 32'768;
  uint64_t max_payload_bytes = uint64_t{4} << 30;
  // Requests of one connection being served at once; the next is read when one ends.
  uint32_t max_calls_per_connection = 1'024;
  // Memory held for requests and unsent answers of one connection: metas, and what the answers'
  // payload sources hold beside the payload. Beyond it no further request is read.
  uint64_t max_buffered_bytes_per_connection = 8 << 20;
  absl::Duration handshake_timeout = absl::Seconds(5);
  absl::Duration idle_timeout = absl::Minutes(10);
  // A transfer under way (payload or half a frame) that makes no progress for this long is cut, as
  // is one that runs on for this long after its call's deadline.
  absl::Duration stall_timeout = absl::Seconds(30);
};

struct ServerStats {
  uint64_t connections = 0;  // now
  uint64_t accepted = 0;
  uint64_t refused = 0;  // over max_connections
  uint64_t handshake_failures = 0;
  uint64_t protocol_errors = 0;
  uint64_t stalled = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t calls = 0;

  ServerStats& operator+=(const ServerStats& other) {
    connections += other.connections;
    accepted += other.accepted;
    refused += other.refused;
    handshake_failures += other.handshake_failures;
    protocol_errors += other.protocol_errors;
    stalled += other.stalled;
    bytes_in += other.bytes_in;
    bytes_out += other.bytes_out;
    calls += other.calls;
    return *this;
  }
};

// A wire's listening side. Thread-safe.
class WireServer {
 public:
  virtual ~WireServer() = default;  // stops
  // Where clients reach it: "127.0.0.1:7610".
  virtual std::string address() const = 0;
  virtual uint16_t port() const = 0;
  virtual ServerStats stats() const = 0;
  // Takes no new connections; those that are there go on. A peer that dials is refused at once.
  // Idempotent.
  virtual void StopAccepting() {}
  // Whether every thread of the wire comes round within `timeout`: false says that one hangs. Waits
  // for them. Not on a thread of the wire.
  virtual bool Responsive(absl::Duration timeout) {
    static_cast<void>(timeout);
    return true;
  }
  // Stops accepting, closes every connection (aborting its calls; answers given before leave as far
  // as sockets take them), joins the threads. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SERVER_H_
