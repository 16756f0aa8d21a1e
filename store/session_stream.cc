#include "store/session_stream.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "base/mutex.h"
#include "proto/store.grpc.pb.h"

namespace cistern::store {
namespace {

grpc::ChannelArguments SessionArguments() {
  grpc::ChannelArguments args;
  // A restarted master must be found within a second: gRPC's own back-off starts at one second.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // A peer that vanished without a word is noticed by pings.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Each stream gets a connection of its own: a dead one is never shared with the next try.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetMaxReceiveMessageSize(kMaxSessionMessageBytes);
  args.SetMaxSendMessageSize(kMaxSessionMessageBytes);
  return args;
}

class GrpcSessionStream final
    : public SessionStream,
      private grpc::ClientBidiReactor<wire::StoreMessage, wire::MasterMessage> {
 public:
  GrpcSessionStream(const std::string& address, std::function<void()> wake)
      : wake_(std::move(wake)),
        channel_(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                           SessionArguments())),
        stub_(wire::StoreSession::NewStub(channel_)) {
    stub_->async()->Session(&context_, this);
    // Reads and writes are started by the owner's thread too: the hold keeps OnDone away until
    // that thread calls Close().
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  ~GrpcSessionStream() override { Close().IgnoreError(); }

  absl::Status Close() override {
    bool cancel = false;
    {
      MutexLock lock(mutex_);
      cancel = !ended_;
      ended_ = true;
      if (std::exchange(hold_released_, true)) return status_;
    }
    // An ended stream keeps the status that the master gave it.
    if (cancel) context_.TryCancel();
    RemoveHold();
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
    return status_;
  }

  bool TryWrite(wire::StoreMessage* message) override {
    {
      MutexLock lock(mutex_);
      if (writing_ || ended_) return false;
      writing_ = true;
      outgoing_.Swap(message);
    }
    StartWrite(&outgoing_);
    return true;
  }

  std::vector<wire::MasterMessage> TakeMessages() override {
    std::vector<wire::MasterMessage> taken;
    bool resume = false;
    {
      MutexLock lock(mutex_);
      taken.swap(queue_);
      resume = std::exchange(read_paused_, false) && !ended_;
    }
    if (resume) StartRead(&incoming_);
    return taken;
  }

  absl::Status status() const override {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  void OnReadDone(bool ok) override {
    bool read_more = false;
    {
      MutexLock lock(mutex_);
      if (!ok) {
        EndLocked(absl::UnavailableError("the master closed the session"));
      } else {
        queue_.emplace_back();
        queue_.back().Swap(&incoming_);
        read_more = queue_.size() < kMaxQueuedMessages;
        read_paused_ = !read_more;
      }
    }
    if (read_more) StartRead(&incoming_);
    wake_();
  }

  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) EndLocked(absl::UnavailableError("the master no longer reads the session"));
    }
    wake_();
  }

  void OnDone(const grpc::Status& status) override {
    // Notified under the lock: Close() may return, and the object go, as soon as it sees done_.
    MutexLock lock(mutex_);
    ended_ = true;
    if (!status.ok()) {
      status_ =
          absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    } else if (status_.ok()) {
      status_ = absl::UnavailableError("the master ended the session");
    }
    done_ = true;
    changed_.NotifyAll();
  }

  void EndLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ended_ = true;
    if (status_.ok()) status_ = std::move(why);
  }

  const std::function<void()> wake_;
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::StoreSession::Stub> stub_;
  wire::MasterMessage incoming_;  // gRPC's while a read is pending
  wire::StoreMessage outgoing_;   // gRPC's while writing_

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<wire::MasterMessage> queue_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool hold_released_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<SessionStream> OpenSessionStream(const std::string& address,
                                                 std::function<void()> wake) {
  return std::make_unique<GrpcSessionStream>(address, std::move(wake));
}

}  // namespace cistern::store
