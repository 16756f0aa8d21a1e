#include "transport/io_thread.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace cistern::transport {
namespace {

static_assert(POLLIN == EPOLLIN && POLLOUT == EPOLLOUT && POLLERR == EPOLLERR &&
              POLLHUP == EPOLLHUP);
constexpr int kMaxEvents = 64;
constexpr int kLongestSleepMs = 60'000;

}  // namespace

IoThread::~IoThread() { Stop(); }

absl::Status IoThread::Start() {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return ErrnoStatus(errno, "epoll_create1");
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return ErrnoStatus(errno, "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error& error) {
    return ErrnoStatus(error.code().value(), "cannot start a thread");
  }
  return absl::OkStatus();
}

void IoThread::Stop() {
  if (abandoned_) return;
  blocking_.Stop();
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
  epoll_fd_ = wake_fd_ = -1;
}

void IoThread::AbandonAfterFork() {
  // The thread does not exist here, and its handle may not be touched; the descriptors are the
  // parent's too: close, change nothing. Locks may have been held at the fork: take none.
  abandoned_ = true;
  static std::vector<std::thread>& kept = *new std::vector<std::thread>();
  kept.push_back(std::move(thread_));
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
  epoll_fd_ = wake_fd_ = -1;
}

void IoThread::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
}

void IoThread::PushTimerLocked(Timer timer) {
  const bool earliest = timers_.empty() || timer.when < timers_.top().when;
  timers_.push(std::move(timer));
  if (earliest && !woken_) {
    woken_ = true;
    Wake();
  }
}

void IoThread::Arm(Driver& driver, const Driver::Interest& interest) {
  MutexLock lock(mutex_);
  Entry& entry = drivers_[driver.id()];
  entry.driver = driver.weak_from_this();
  // Behind the entry: an event may arrive at once, and one without a driver is lost.
  if (interest.fd >= 0) {
    epoll_event event{};
    event.events = static_cast<uint32_t>(interest.events) | EPOLLONESHOT;
    event.data.u64 = driver.id();
    if (epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, interest.fd, &event) != 0 && errno == ENOENT) {
      epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, interest.fd, &event);
    }
  }
  if (interest.timer < entry.timer_at) {
    entry.timer_at = interest.timer;
    PushTimerLocked({interest.timer, driver.id(), nullptr});
  }
  if (interest.drive_now) {
    drive_now_.push_back(driver.id());
    if (!woken_) {
      woken_ = true;
      Wake();
    }
  }
}

void IoThread::Disarm(int fd) {
  if (fd >= 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void IoThread::Forget(uint64_t driver_id) {
  if (abandoned_) return;
  MutexLock lock(mutex_);
  drivers_.erase(driver_id);
}

void IoThread::RunAt(MonoTime when, absl::AnyInvocable<void()> fn) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  PushTimerLocked({when, 0, std::make_shared<absl::AnyInvocable<void()>>(std::move(fn))});
}

void IoThread::RunSoon(absl::AnyInvocable<void()> fn) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  soon_.push_back(std::move(fn));
  if (!woken_) {
    woken_ = true;
    Wake();
  }
}

int IoThread::TimeoutMs() {
  MutexLock lock(mutex_);
  if (!soon_.empty() || !drive_now_.empty() || stopping_) return 0;
  if (timers_.empty()) return -1;
  const absl::Duration left = timers_.top().when - clock_.Mono();
  if (left <= absl::ZeroDuration()) return 0;
  // Rounded up: a timer must not fire early, nor the thread spin until it is due.
  return static_cast<int>(std::min<int64_t>(
      absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), kLongestSleepMs));
}

void IoThread::DriveOne(uint64_t driver_id, short revents) {
  std::shared_ptr<Driver> driver;
  {
    MutexLock lock(mutex_);
    const auto it = drivers_.find(driver_id);
    if (it == drivers_.end()) return;
    driver = it->second.driver.lock();
  }
  if (driver != nullptr) driver->DriveFromIoThread(revents);
}

void IoThread::RunDue() {
  std::vector<absl::AnyInvocable<void()>> soon;
  std::vector<uint64_t> drive;
  std::vector<Timer> due;
  {
    MutexLock lock(mutex_);
    soon.swap(soon_);
    drive.swap(drive_now_);
    const MonoTime now = clock_.Mono();
    while (!timers_.empty() && timers_.top().when <= now) {
      due.push_back(timers_.top());
      timers_.pop();
      const auto it = drivers_.find(due.back().driver_id);
      // An entry whose timer was moved forward meanwhile keeps the later one in the queue too: it
      // fires for nothing, once.
      if (it != drivers_.end()) it->second.timer_at = MonoTime::Infinite();
    }
  }
  for (auto& fn : soon) fn();
  for (const uint64_t id : drive) DriveOne(id, 0);
  for (Timer& timer : due) {
    if (timer.fn != nullptr) {
      (*timer.fn)();
    } else {
      DriveOne(timer.driver_id, 0);
    }
  }
}

void IoThread::Loop() {
  epoll_event events[kMaxEvents];
  for (;;) {
    const int n = epoll_wait(epoll_fd_, events, kMaxEvents, TimeoutMs());
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t drained = read(wake_fd_, &count, sizeof(count));
        MutexLock lock(mutex_);
        woken_ = false;
      } else {
        DriveOne(events[i].data.u64, static_cast<short>(events[i].events));
      }
    }
    RunDue();
  }
}

}  // namespace cistern::transport
