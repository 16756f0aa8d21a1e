// Drives the calling side's connections: one background thread, and every thread that waits.
#ifndef CISTERN_TRANSPORT_IO_CONTEXT_H_
#define CISTERN_TRANSPORT_IO_CONTEXT_H_

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "transport/channel.h"

namespace cistern::transport {

// Thread-safe. Must outlive the channels made on it.
class IoContext {
 public:
  struct Options {
    Clock* clock = &Clock::Real();
  };
  static absl::StatusOr<std::unique_ptr<IoContext>> Create(Options options);
  virtual ~IoContext() = default;

  // Returns when no call of `group` is pending. The calling thread drives the connections of the
  // group's calls where nobody else does. Ends because every call has a deadline. Not from a
  // callback of a call.
  virtual void Wait(CallGroup& group) = 0;
  // The same, but returns also once `enough` (asked between turns, and whenever
  // CallGroup::WakeWaiters is called; it must not block) or at `until`. For groups with on_idle:
  // the others' calls may rest when their waiter leaves.
  virtual void WaitUntil(CallGroup& group, MonoTime until, absl::FunctionRef<bool()> enough) = 0;

  // Runs `fn` on the I/O thread at `when`. Dropped unrun at shutdown.
  virtual void RunAt(MonoTime when, absl::AnyInvocable<void()> fn) = 0;

  // The process's fork child: there is no I/O thread here; let go of everything shared with the
  // parent. Only destruction is allowed afterwards.
  virtual void AbandonAfterFork() = 0;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_IO_CONTEXT_H_
