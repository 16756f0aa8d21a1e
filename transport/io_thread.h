// The context's one background thread: drives the calls that nobody waits for, and runs timers.
#ifndef CISTERN_TRANSPORT_IO_THREAD_H_
#define CISTERN_TRANSPORT_IO_THREAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <queue>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/blocking_thread.h"
#include "transport/driver.h"

namespace cistern::transport {

// Thread-safe. Drivers are looked up by number when an event arrives, so that a driver may go at
// any time.
class IoThread {
 public:
  explicit IoThread(Clock* clock)
      : clock_(*clock),
        blocking_([this](BlockingThread::Result result) { RunSoon(std::move(result)); }) {}
  ~IoThread();
  absl::Status Start();
  void Stop();
  void AbandonAfterFork();

  Clock& clock() const { return clock_; }

  // Watches the driver's descriptor once, its timer, and drives it at once if it asks for it.
  // Called with the driver's lock held: takes only its own.
  void Arm(Driver& driver, const Driver::Interest& interest);
  void Disarm(int fd);
  void Forget(uint64_t driver_id);

  // Runs `fn` on the thread, at `when` or soon.
  void RunAt(MonoTime when, absl::AnyInvocable<void()> fn);
  void RunSoon(absl::AnyInvocable<void()> fn);
  // Runs `work`, which may block, elsewhere, and what it returns on the thread. Stop() does not
  // wait for it.
  void RunBlocking(BlockingThread::Work work) { blocking_.Run(std::move(work)); }

 private:
  struct Timer {
    MonoTime when;
    uint64_t driver_id;  // 0: a function
    std::shared_ptr<absl::AnyInvocable<void()>> fn;
    bool operator>(const Timer& other) const { return when > other.when; }
  };
  struct Entry {
    std::weak_ptr<Driver> driver;
    MonoTime timer_at = MonoTime::Infinite();  // the earliest that is in timers_
  };
  void Loop();
  void Wake();
  int TimeoutMs();
  void DriveOne(uint64_t driver_id, short revents);
  void RunDue();
  void PushTimerLocked(Timer timer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock& clock_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::thread thread_;
  bool abandoned_ = false;  // in a fork child only
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_map<uint64_t, Entry> drivers_ ABSL_GUARDED_BY(mutex_);
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> drive_now_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> soon_ ABSL_GUARDED_BY(mutex_);
  BlockingThread blocking_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_IO_THREAD_H_
