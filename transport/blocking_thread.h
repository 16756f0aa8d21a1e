// For what may block and cannot be interrupted (resolving a host name): a thread that nobody ever
// waits for.
#ifndef CISTERN_TRANSPORT_BLOCKING_THREAD_H_
#define CISTERN_TRANSPORT_BLOCKING_THREAD_H_

#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"

namespace cistern::transport {

// Runs one piece of work after the other. The thread is there while there is work only.
// Thread-safe.
class BlockingThread {
 public:
  // What follows a piece of work, handed to `deliver`.
  using Result = absl::AnyInvocable<void()>;
  using Work = absl::AnyInvocable<Result()>;

  // `deliver` is called on the thread, with a lock held: it must only pass the result on.
  explicit BlockingThread(std::function<void(Result)> deliver);
  // Touches nothing: in a fork's child neither the thread nor the lock may be relied on.
  ~BlockingThread() = default;

  // `work` may run on long after Stop(), and must own what it uses.
  void Run(Work work);
  // After it nothing is delivered, and what has not begun never will. Does not wait.
  void Stop();

 private:
  struct State;
  static void Loop(const std::shared_ptr<State>& state);
  const std::shared_ptr<State> state_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_BLOCKING_THREAD_H_
