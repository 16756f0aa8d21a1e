#include "transport/blocking_thread.h"

#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace cistern::transport {

struct BlockingThread::State {
  Mutex mutex;
  std::function<void(Result)> deliver ABSL_GUARDED_BY(mutex);
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool running ABSL_GUARDED_BY(mutex) = false;
  std::deque<Work> queue ABSL_GUARDED_BY(mutex);
};

BlockingThread::BlockingThread(std::function<void(Result)> deliver)
    : state_(std::make_shared<State>()) {
  MutexLock lock(state_->mutex);
  state_->deliver = std::move(deliver);
}

void BlockingThread::Run(Work work) {
  {
    MutexLock lock(state_->mutex);
    if (state_->stopped) return;
    state_->queue.push_back(std::move(work));
    if (std::exchange(state_->running, true)) return;
  }
  try {
    std::thread([state = state_] { Loop(state); }).detach();
  } catch (const std::system_error&) {
    Loop(state_);  // no thread to be had: better late than never
  }
}

void BlockingThread::Stop() {
  std::deque<Work> dropped;
  MutexLock lock(state_->mutex);
  state_->stopped = true;
  dropped.swap(state_->queue);
}

void BlockingThread::Loop(const std::shared_ptr<State>& state) {
  for (;;) {
    Work work;
    {
      MutexLock lock(state->mutex);
      if (state->queue.empty()) {
        state->running = false;
        return;
      }
      work = std::move(state->queue.front());
      state->queue.pop_front();
    }
    Result result = work();
    MutexLock lock(state->mutex);
    // Under the lock: after Stop() the receiver is gone.
    if (!state->stopped) state->deliver(std::move(result));
  }
}

}  // namespace cistern::transport
