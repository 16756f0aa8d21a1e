// Simulated time: things happen in the order of their times, ties in the order they were asked for.
#ifndef CISTERN_TESTS_SIMULATION_EVENT_QUEUE_H_
#define CISTERN_TESTS_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace cistern::simulation {

class EventQueue {
 public:
  MonoTime now() const { return now_; }
  void At(MonoTime when, std::function<void()> what) {
    events_.push({when < now_ ? now_ : when, next_++, std::move(what)});
  }
  void After(absl::Duration delay, std::function<void()> what) {
    At(now_ + delay, std::move(what));
  }
  // Everything up to and at `end`; then it is `end`.
  void RunUntil(MonoTime end) {
    while (!events_.empty() && events_.top().when <= end) {
      Event event = events_.top();
      events_.pop();
      now_ = event.when;
      event.what();
    }
    now_ = end;
  }

 private:
  struct Event {
    MonoTime when;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return when == other.when ? order > other.order : when > other.when;
    }
  };
  MonoTime now_{absl::Seconds(1000)};
  uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace cistern::simulation

#endif  // CISTERN_TESTS_SIMULATION_EVENT_QUEUE_H_
