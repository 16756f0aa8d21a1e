// The states behind Pending.
#ifndef CISTERN_CLIENT_PENDING_CALL_H_
#define CISTERN_CLIENT_PENDING_CALL_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "client/client.h"
#include "client/client_core.h"

namespace cistern {

// A call that runs. Destroying it cancels the call and waits for its quiet end.
template <typename Result, typename Op>
class PendingCall final : public Pending<Result>::State {
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
    return core_->fork_guard.Forked() || operation_->WaitFor(timeout);
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

 private:
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

// A call that was over before it began. Not thread-safe beyond Done and EventFd.
template <typename Result>
class PendingResult final : public Pending<Result>::State {
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

 private:
  Result result_;
  const int event_fd_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PENDING_CALL_H_
