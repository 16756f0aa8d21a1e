// One store's gRPC stream, without any meaning: messages in, messages out.
#ifndef CISTERN_MASTER_SESSION_STREAM_H_
#define CISTERN_MASTER_SESSION_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "proto/store.pb.h"

namespace cistern::master {

class SessionStream;

// Who is told of a stream's events. On gRPC's threads, one event of a stream at a time. These are
// few (two, on a small host), and while they are held up nobody is accepted or answered on the
// port: what takes long is done elsewhere.
class SessionStreamOwner {
 public:
  virtual ~SessionStreamOwner() = default;
  // `message` may be moved from. True: it is dealt with, the next is read. False: it stays as it is
  // until the owner has called stream.ReadNext(), once, from any thread.
  virtual bool OnStreamMessage(SessionStream& stream, wire::StoreMessage& message) = 0;
  // The queue has become short (see HasRoom). Also while the two others run.
  virtual void OnStreamRoom(SessionStream& stream) = 0;
  // No message follows. Exactly once, even if no message ever came.
  virtual void OnStreamClosed(SessionStream& stream) = 0;
};

// Promise: messages are sent in the order of Send(); the queue is bounded, and a peer that does not
// read is cut when it is full. Role: made by SessionService, one per stream; calls its owner.
// Thread-safe. Owns itself until gRPC is done with it; others may keep it alive and find it closed.
class SessionStream final : public grpc::ServerBidiReactor<wire::StoreMessage, wire::MasterMessage>,
                            public std::enable_shared_from_this<SessionStream> {
 public:
  struct Limits {
    // Beyond these the peer is cut: senders ask HasRoom first.
    size_t max_queued_messages = 256;
    size_t max_queued_bytes = 64 << 20;
    // Below these there is room.
    size_t room_messages = 16;
    size_t room_bytes = 1 << 20;
  };

  // `owner` must outlive the stream's OnStreamClosed. Start() reads the first message.
  SessionStream(uint64_t id, grpc::CallbackServerContext* context, SessionStreamOwner* owner,
                Clock& clock, const Limits& limits);
  // Takes hold of itself and starts reading. Once, by the maker, who returns it to gRPC.
  void Start();
  // The message that OnStreamMessage has kept is dealt with.
  void ReadNext();

  // Queues a message. Silently nothing after Close or Abort. Never blocks.
  void Send(wire::MasterMessage message);
  // Sends an ErrorReply after what is queued, then ends the stream.
  void CloseWithError(const absl::Status& why);
  // Ends the stream after what is queued.
  void Close();
  // Ends the stream now, whatever is queued.
  void Abort();

  uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }
  MonoTime opened_at() const { return opened_at_; }
  // Open, and short enough a queue to be given more.
  bool HasRoom() const;
  // How long the message being sent has not been taken by the peer's side; 0 when none is.
  absl::Duration StalledFor(MonoTime now) const;
  // Since when Close has been waiting for the end; infinite when it has not been called.
  MonoTime closing_since() const;

  // The owner's own state for this stream: only from OnStreamMessage and OnStreamClosed.
  std::shared_ptr<void> owner_state;

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // What is to be called once the lock is released: gRPC is never called under it.
  enum class Step { kNothing, kWrite, kFinish };
  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Step NextStepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Step step);

  const uint64_t id_;
  grpc::CallbackServerContext* const context_;
  SessionStreamOwner* const owner_;
  Clock& clock_;
  const MonoTime opened_at_;
  const Limits limits_;
  const std::string peer_;

  wire::StoreMessage incoming_;  // gRPC's while it reads, else the owner's

  mutable Mutex mutex_;
  // Messages read whose successor's read has not been started: until then the stream is not
  // finished, behind which gRPC may let go of it.
  int in_hand_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<wire::MasterMessage> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  MonoTime write_started_ ABSL_GUARDED_BY(mutex_);
  MonoTime closing_since_ ABSL_GUARDED_BY(mutex_) = MonoTime::Infinite();
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;     // finish when the queue is empty
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;     // finish as soon as no write is under way
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;    // Finish was called, or is about to be
  bool cancelling_ ABSL_GUARDED_BY(mutex_) = false;  // TryCancel is being called
  std::shared_ptr<SessionStream> self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  wire::MasterMessage outgoing_;  // belongs to gRPC while writing_; else set under the lock
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SESSION_STREAM_H_
