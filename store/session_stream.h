// One gRPC stream to the master, as plain calls: the thread that owns it sends and receives with
// deadlines; gRPC's own threads only move messages. No gRPC type shows in this header.
#ifndef CISTERN_STORE_SESSION_STREAM_H_
#define CISTERN_STORE_SESSION_STREAM_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/store.pb.h"

namespace cistern::store {

// Used by one thread, its owner. Destroying it closes it.
class SessionStream {
 public:
  virtual ~SessionStream() = default;

  // Hands one message to the wire. False while the one before is still being written: wait for
  // `wake` and try again. The message is swapped out on success.
  virtual bool TryWrite(wire::StoreMessage* message) = 0;

  // What has arrived since, in order. At most kMaxQueuedMessages wait here; beyond, reading pauses.
  virtual std::vector<wire::MasterMessage> TakeMessages() = 0;

  // Not OK once the stream can carry no more: call Close() to learn why.
  virtual absl::Status status() const = 0;

  // Ends the stream, waits until gRPC has let go of it, and says why it ended; DeadlineExceeded
  // when gRPC does not within `timeout`: it then goes by itself later. Idempotent.
  virtual absl::Status Close(absl::Duration timeout = kCloseTimeout) = 0;

  static constexpr absl::Duration kCloseTimeout = absl::Seconds(5);
};

inline constexpr size_t kMaxQueuedMessages = 64;
inline constexpr int kMaxSessionMessageBytes = 16 << 20;

// Dials `address` (HOST:PORT). `wake` is called (from gRPC's threads) when a message arrived, a
// write finished or the stream ended; it must be quick and is never called after destruction.
std::unique_ptr<SessionStream> OpenSessionStream(const std::string& address,
                                                 std::function<void()> wake);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SESSION_STREAM_H_
