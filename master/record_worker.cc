#include "master/record_worker.h"

#include <utility>

namespace cistern::master {

RecordWorker::RecordWorker(CoreDriver& driver) : driver_(driver), thread_([this] { Loop(); }) {}

RecordWorker::~RecordWorker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  added_.NotifyOne();
  thread_.join();
}

void RecordWorker::Add(SessionId session, const wire::StoreMessage& message, Done done) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = jobs_.empty();
    jobs_.push_back({SessionCall(session, message), std::move(done)});
  }
  if (first) added_.NotifyOne();
}

void RecordWorker::Loop() {
  std::deque<Job> turn;  // one slice of each
  std::deque<Job> unfinished;
  while (true) {
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && unfinished.empty() && !stopping_) added_.Wait(mutex_);
      if (jobs_.empty() && unfinished.empty()) return;
      turn.swap(unfinished);
      while (!jobs_.empty()) {
        turn.push_back(std::move(jobs_.front()));
        jobs_.pop_front();
      }
    }
    for (; !turn.empty(); turn.pop_front()) {
      Job& job = turn.front();
      busy_.Begin(driver_.clock().Mono());
      const bool over =
          driver_.With([&job](MasterCore& core, MonoTime now) { return job.call.Step(core, now); });
      if (over) {
        job.done(job.call.status());
      } else {
        unfinished.push_back(std::move(job));
      }
      busy_.End();
    }
  }
}

}  // namespace cistern::master
