#include "store/work_thread.h"

#include <utility>

namespace cistern::store {

void WorkThread::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void WorkThread::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  std::deque<Task> unrun;  // destroyed without the lock: a task may own what calls back
  MutexLock lock(mutex_);
  unrun.swap(tasks_);
}

bool WorkThread::Run(Task task) {
  MutexLock lock(mutex_);
  if (stopping_ || tasks_.size() >= max_queued_) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
  return true;
}

size_t WorkThread::queued() const {
  MutexLock lock(mutex_);
  return tasks_.size();
}

void WorkThread::Loop() {
  while (true) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && tasks_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    busy_.Begin(clock_.Mono());
    task();
    task = nullptr;  // what it owns goes in its time
    busy_.End();
  }
}

}  // namespace cistern::store
