// One thread for work that is too long for a loop thread.
#ifndef CISTERN_STORE_WORK_THREAD_H_
#define CISTERN_STORE_WORK_THREAD_H_

#include <cstddef>
#include <deque>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/busy_watch.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace cistern::store {

// Runs tasks one after the other, in the order of Run(). A long job runs a slice a task and queues
// itself again, so that the others have their turn. Thread-safe; owns the thread and the tasks.
class WorkThread {
 public:
  using Task = absl::AnyInvocable<void()>;

  WorkThread(size_t max_queued, Clock& clock) : max_queued_(max_queued), clock_(clock) {}
  ~WorkThread() { Stop(); }

  void Start();
  // Joins; tasks not run yet are destroyed unrun. After it Run() is false. Idempotent.
  void Stop();

  // False: the queue is full, or the thread was stopped. The task is destroyed then. Tasks may be
  // queued before Start().
  bool Run(Task task);
  size_t queued() const;
  // How long the task in hand has been running: long when it hangs.
  absl::Duration busy_for() const { return busy_.BusyFor(clock_.Mono()); }

 private:
  void Loop();

  const size_t max_queued_;
  Clock& clock_;
  BusyWatch busy_;
  std::thread thread_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_WORK_THREAD_H_
