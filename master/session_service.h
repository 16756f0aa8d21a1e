// The stores' sessions: proto/store.proto, one gRPC stream per store.
//
//   1. S -> M  hello_auth     handshake_.OnHello, the stream is a stranger's until step 4
//   2. M -> S  auth_ack
//   3. S -> M  auth           handshake_.OnAuth
//   4. S -> M  hello          MasterCore::OnHello numbers the session
//   5. M -> S  hello_ack      once the epoch it names is on disk; from then on the core's messages
//   6. S -> M  anything else  SessionCall, on the RecordWorker's thread; then the next is read
//
// Whatever goes wrong is answered with an ErrorReply and the end of the stream.
#ifndef CISTERN_MASTER_SESSION_SERVICE_H_
#define CISTERN_MASTER_SESSION_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "master/core_driver.h"
#include "master/record_worker.h"
#include "master/session_stream.h"
#include "master/state_store_rocksdb.h"
#include "proto/store.grpc.pb.h"
#include "transport/handshake.h"

namespace cistern::master {

// Promise: the core hears of a session only after both sides have proved themselves, hears each
// message in order, and of its end at once. A stream that does not get through the handshake in
// time, or does not read what it is sent, is cut. Role: gRPC calls it with streams, CoreDriver with
// messages for them, the ticker sweeps. Thread-safe. Borrows driver and state; its streams must
// have ended (Close, then the gRPC server's shutdown) before it is destroyed.
class SessionService final : public wire::StoreSession::CallbackService,
                             public SessionStreamOwner,
                             public SessionOutput {
 public:
  struct Options {
    transport::LocalIdentity identity;
    absl::Duration handshake_timeout = absl::Seconds(5);
    // A stream whose peer takes nothing for this long, or that does not end, is cut.
    absl::Duration stall_timeout = absl::Seconds(30);
    absl::Duration close_timeout = absl::Seconds(1);
    size_t max_streams = 16'384;
    SessionStream::Limits stream;
    // A store's answer to a SegmentCommand.
    std::function<void(SessionId, wire::SegmentDone&)> on_segment_done;
    // This master must stop: a store is in session with a master of a higher epoch.
    std::function<void(const absl::Status&)> on_fenced;
  };
  SessionService(Options options, CoreDriver& driver, RocksStateStore& state);
  ~SessionService() override;

  // Cuts streams that are too slow. Every 100 ms or so.
  void Sweep();
  // Ends every stream and takes no more: the daemon stops.
  void Close();
  size_t stream_count() const;
  // Of the thread that works off what the stores send: see RecordWorker.
  absl::Duration busy_for() const { return worker_.busy_for(); }
  // Streams that ended before their store had proved itself and said hello.
  uint64_t handshake_failures() const {
    return handshake_failures_.load(std::memory_order_relaxed);
  }

  // wire::StoreSession::CallbackService, on gRPC's threads:
  grpc::ServerBidiReactor<wire::StoreMessage, wire::MasterMessage>* Session(
      grpc::CallbackServerContext* context) override;
  // SessionStreamOwner, on gRPC's threads:
  bool OnStreamMessage(SessionStream& stream, wire::StoreMessage& message) override;
  void OnStreamRoom(SessionStream& stream) override;
  void OnStreamClosed(SessionStream& stream) override;
  // SessionOutput:
  bool CanTake(SessionId session) override;
  void Deliver(SessionId session, std::vector<wire::MasterMessage> messages) override;

 private:
  struct StreamState;
  using StreamPtr = std::shared_ptr<SessionStream>;

  // Each answers the message of its step, or says why the stream must end.
  absl::Status OnHelloAuth(SessionStream& stream, StreamState& state,
                           const wire::StoreMessage& message);
  absl::Status OnAuth(StreamState& state, const wire::StoreMessage& message);
  absl::Status OnHello(SessionStream& stream, StreamState& state,
                       const wire::StoreMessage& message);
  // Leaves the message to the worker.
  void OnRecords(SessionStream& stream, StreamState& state, const wire::StoreMessage& message);
  void EndWithError(SessionStream& stream, StreamState& state, const absl::Status& why);
  // Sends hello_ack and lets the core's messages follow.
  void Welcome(const StreamPtr& stream, SessionId session, const wire::SessionHelloAck& ack);
  void EndSession(StreamState& state);
  StreamPtr Find(SessionId session) const;

  const Options options_;
  CoreDriver& driver_;
  RocksStateStore& state_;

  struct Entry {
    StreamPtr stream;
    bool stranger = false;  // still in the handshake
  };

  std::atomic<uint64_t> next_stream_{1};
  std::atomic<uint64_t> handshake_failures_{0};

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, Entry> streams_ ABSL_GUARDED_BY(mutex_);
  // Sessions that have been welcomed.
  absl::flat_hash_map<SessionId, StreamPtr> sessions_ ABSL_GUARDED_BY(mutex_);

  RecordWorker worker_;  // last: it uses the others until it is gone
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SESSION_SERVICE_H_
