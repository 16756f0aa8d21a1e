// The states behind Pending.
#ifndef CISTERN_CLIENT_PENDING_CALL_H_
#define CISTERN_CLIENT_PENDING_CALL_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/client_core.h"

namespace cistern {

// A call that runs. Destroying it cancels the call and waits for its quiet end.
template <typename Result, typename Op, typename State = typename Pending<Result>::State>
class PendingCall : public State {
 public:
  PendingCall(std::shared_ptr<ClientCore> core, std::shared_ptr<Op> operation)
      : core_(std::move(core)), operation_(std::move(operation)) {}
  ~PendingCall() override {
    if (core_->fork_guard.Forked()) {
      // The call is the parent's, and so is the thread that would end it.
      (void)new std::shared_ptr<Op>(std::move(operation_));
      return;
    }
    Cancel();
    AwaitEnd();
  }
  bool Done() override { return core_->fork_guard.Forked() || operation_->Done(); }
  bool Wait(absl::Duration timeout) override {
    if (core_->fork_guard.Forked()) return true;
    // Once the client is being closed its connections are not to be touched from here.
    const absl::StatusOr<CallGuard> guard = core_->Enter();
    return guard.ok() ? operation_->DriveFor(timeout) : operation_->WaitFor(timeout);
  }
  int EventFd() override { return core_->fork_guard.Forked() ? -1 : operation_->EventFd(); }
  void Cancel() override {
    // When the client is being closed its calls are cancelled anyway.
    if (const absl::StatusOr<CallGuard> guard = core_->Enter(); guard.ok()) operation_->Cancel();
  }
  Result Take() override {
    if (absl::Status status = core_->fork_guard.Check(); !status.ok()) {
      if constexpr (std::is_same_v<Result, BatchResult>) {
        return BatchResult{.status = status, .items = {}, .message = {}};
      } else {
        return status;
      }
    }
    AwaitEnd();
    return operation_->Take();
  }

 protected:
  void AwaitEnd() {
    if (const absl::StatusOr<CallGuard> guard = core_->Enter(); guard.ok()) {
      operation_->Wait();
    } else {
      operation_->WaitIdly();
    }
  }

  const std::shared_ptr<ClientCore> core_;
  std::shared_ptr<Op> operation_;
};

// A get that runs.
template <typename Op>
class PendingGetCall final : public PendingCall<BatchResult, Op, PendingGet::State> {
  using Base = PendingCall<BatchResult, Op, PendingGet::State>;

 public:
  using Base::Base;
  uint32_t PartsDone() override {
    return this->core_->fork_guard.Forked() ? 0 : this->operation_->progress().parts_done();
  }
  PartWait WaitPart(uint32_t part, absl::Duration timeout) override {
    // Waiting drives the calls.
    const absl::StatusOr<CallGuard> guard = this->core_->Enter();
    if (guard.ok()) return this->operation_->WaitPart(part, timeout);
    if (this->core_->fork_guard.Forked()) return PartWait::kMissing;
    // The client is being closed, which ends the call: soon there is nothing to drive.
    this->operation_->WaitFor(timeout);
    return this->operation_->WaitPart(part, absl::ZeroDuration());
  }
  std::vector<MissedChunk> MissedSoFar() override {
    if (this->core_->fork_guard.Forked()) return {};
    return this->operation_->progress().missed();
  }
  int PartEventFd() override {
    return this->core_->fork_guard.Forked() ? -1 : this->operation_->progress().EventFd();
  }
};

// A call that was over before it began. Not thread-safe beyond Done and EventFd.
template <typename Result, typename State = typename Pending<Result>::State>
class PendingResult : public State {
 public:
  explicit PendingResult(Result result)
      : result_(std::move(result)), event_fd_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~PendingResult() override {
    if (event_fd_ >= 0) close(event_fd_);
  }
  bool Done() override { return true; }
  bool Wait(absl::Duration) override { return true; }
  int EventFd() override { return event_fd_; }
  void Cancel() override {}
  Result Take() override { return std::move(result_); }

 protected:
  const Result& result() const { return result_; }

 private:
  Result result_;
  const int event_fd_;
};

// A get that could not be tried: every chunk failed.
class PendingGetResult final : public PendingResult<BatchResult, PendingGet::State> {
 public:
  explicit PendingGetResult(BatchResult result) : PendingResult(std::move(result)) {
    for (const ChunkResult& item : this->result().items) {
      missed_.push_back({static_cast<uint32_t>(missed_.size()), item.code, 0});
    }
  }
  uint32_t PartsDone() override { return PendingGet::kAllParts; }
  PartWait WaitPart(uint32_t, absl::Duration) override {
    return missed_.empty() ? PartWait::kReady : PartWait::kMissing;
  }
  std::vector<MissedChunk> MissedSoFar() override { return missed_; }
  int PartEventFd() override { return EventFd(); }

 private:
  std::vector<MissedChunk> missed_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PENDING_CALL_H_
