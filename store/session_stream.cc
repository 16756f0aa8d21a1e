#include "store/session_stream.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mutex.h"
#include "base/status.h"
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

// gRPC's side of a stream. Must not be destroyed before done(), nor on one of gRPC's threads.
class StreamCall final : private grpc::ClientBidiReactor<wire::StoreMessage, wire::MasterMessage> {
 public:
  static std::shared_ptr<StreamCall> Start(const std::string& address, std::function<void()> wake) {
    std::shared_ptr<StreamCall> call(new StreamCall(address, std::move(wake)));
    call->made_.store(true, std::memory_order_release);
    call->Begin();
    return call;
  }

  absl::Status Close(absl::Duration timeout) {
    {
      MutexLock lock(wake_mutex_);
      wake_ = nullptr;
    }
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
    const MonoTime until = Clock::Real().Mono() + timeout;
    MutexLock lock(mutex_);
    while (!done_) {
      const absl::Duration left = until - Clock::Real().Mono();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(absl::StrCat(
            "gRPC has not let go of the session's stream within ", absl::FormatDuration(timeout)));
      }
      changed_.WaitFor(mutex_, left);
    }
    return status_;
  }

  bool TryWrite(wire::StoreMessage* message) {
    {
      MutexLock lock(mutex_);
      if (writing_ || ended_) return false;
      writing_ = true;
      outgoing_.Swap(message);
    }
    StartWrite(&outgoing_);
    return true;
  }

  std::vector<wire::MasterMessage> TakeMessages() {
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

  absl::Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }
  bool done() const {
    MutexLock lock(mutex_);
    return done_;
  }

 private:
  StreamCall(const std::string& address, std::function<void()> wake)
      : channel_(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                           SessionArguments())),
        stub_(wire::StoreSession::NewStub(channel_)),
        wake_(std::move(wake)) {}

  void Begin() {
    stub_->async()->Session(&context_, this);
    // Reads and writes are started by the owner's thread too: the hold keeps OnDone away until
    // that thread calls Close().
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void Wake() {
    MutexLock lock(wake_mutex_);
    if (wake_) wake_();
  }

  // First in each callback: it sees the whole object, whatever gRPC does to pass it on.
  void SeeAll() const { CISTERN_CHECK(made_.load(std::memory_order_acquire)); }

  void OnReadDone(bool ok) override {
    SeeAll();
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
    Wake();
  }

  void OnWriteDone(bool ok) override {
    SeeAll();
    {
      MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) EndLocked(absl::UnavailableError("the master no longer reads the session"));
    }
    Wake();
  }

  void OnDone(const grpc::Status& status) override {
    SeeAll();
    (void)CISTERN_FAULT("store.session_stream.on_done");
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

  std::atomic<bool> made_{false};
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::StoreSession::Stub> stub_;
  wire::MasterMessage incoming_;  // gRPC's while a read is pending
  wire::StoreMessage outgoing_;   // gRPC's while writing_

  // Held while it is called, so that it is not once Close has cleared it. Taken before any lock of
  // the owner's.
  Mutex wake_mutex_;
  std::function<void()> wake_ ABSL_GUARDED_BY(wake_mutex_);

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

// Streams that gRPC had not let go of when their owners had to go on. They are freed when the next
// stream is opened, on its owner's thread.
class Abandoned {
 public:
  static Abandoned& Get() {
    static Abandoned* const abandoned = new Abandoned;  // outlives every thread
    return *abandoned;
  }
  void Add(std::shared_ptr<StreamCall> call) {
    MutexLock lock(mutex_);
    calls_.push_back(std::move(call));
  }
  void FreeThoseDone() {
    std::vector<std::shared_ptr<StreamCall>> done;  // freed when the lock is free
    MutexLock lock(mutex_);
    for (auto& call : calls_) {
      if (call->done()) done.push_back(std::move(call));
    }
    calls_.erase(std::remove(calls_.begin(), calls_.end(), nullptr), calls_.end());
  }

 private:
  Mutex mutex_;
  std::vector<std::shared_ptr<StreamCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

class GrpcSessionStream final : public SessionStream {
 public:
  GrpcSessionStream(const std::string& address, std::function<void()> wake)
      : call_(StreamCall::Start(address, std::move(wake))) {}
  ~GrpcSessionStream() override {
    Close(kCloseTimeout).IgnoreError();
    if (!call_->done()) Abandoned::Get().Add(call_);
  }

  bool TryWrite(wire::StoreMessage* message) override { return call_->TryWrite(message); }
  std::vector<wire::MasterMessage> TakeMessages() override { return call_->TakeMessages(); }
  absl::Status status() const override { return call_->status(); }
  absl::Status Close(absl::Duration timeout) override { return call_->Close(timeout); }

 private:
  const std::shared_ptr<StreamCall> call_;
};

}  // namespace

std::unique_ptr<SessionStream> OpenSessionStream(const std::string& address,
                                                 std::function<void()> wake) {
  Abandoned::Get().FreeThoseDone();
  return std::make_unique<GrpcSessionStream>(address, std::move(wake));
}

}  // namespace cistern::store
