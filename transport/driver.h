// What the calling sides of all wires have in common: a state machine that one thread at a time
// runs, and the question which thread that is.
//
// Two roles, never confused:
//   - the strand: whoever runs the state machine now. A thread that submits work runs it itself if
//     the strand is free, else leaves it to the one inside. Nobody blocks in the strand.
//   - the poller: the one thread that waits for the driver's descriptor, outside the strand, and
//     enters it when there is something to read. A waiting thread (IoContext::Wait), or the I/O
//     thread while calls are pending that nobody waits for, or nobody. A waiter that finds the
//     role taken is put in line; a poller that leaves hands the role to the first in line.
#ifndef CISTERN_TRANSPORT_DRIVER_H_
#define CISTERN_TRANSPORT_DRIVER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "transport/group_state.h"
#include "transport/waiter.h"

namespace cistern::transport {

class IoThread;

// Public methods are thread-safe. Held by shared_ptr; `io` must outlive it.
class Driver : public std::enable_shared_from_this<Driver> {
 public:
  // What the poller has to wait for.
  struct Interest {
    int fd = -1;
    short events = 0;
    MonoTime timer = MonoTime::Infinite();
    // There is work now that only the poller may do (make or break a connection).
    bool drive_now = false;
  };

  explicit Driver(IoThread* io);
  virtual ~Driver();

  // Cancels the calls of `group`.
  virtual void CancelGroup(const GroupState* group) = 0;

  // --- for IoContext::Wait ---
  // True: `waiter` is the poller now and *interest is what to poll. False: it is in line, and will
  // be woken when the role is its own.
  bool Attach(Waiter* waiter, Interest* interest);
  // The poller's turn: `revents` as poll() gave them, 0 for timers.
  void Drive(short revents);
  // Takes `waiter` out, handing the role on if it had it.
  void Detach(Waiter* waiter);

  // --- for the I/O thread ---
  uint64_t id() const { return id_; }
  // Drives unless somebody else has become the poller.
  void DriveFromIoThread(short revents);

 protected:
  // Runs `fn` in the strand, here and now if it is free. OnSubmitted follows a batch of them.
  void Submit(absl::AnyInvocable<void()> fn);
  // Waits for the strand, runs `fn` in it. Never from inside the strand.
  void SubmitAndWait(absl::AnyInvocable<void()> fn);
  IoThread* io() const { return io_; }
  // In the strand, before the descriptor is closed: its number may be another driver's at once.
  void BeforeClose();

  // In the strand.
  virtual void OnSubmitted() = 0;
  virtual void OnDrive(short revents) = 0;
  virtual Interest CurrentInterest() = 0;
  // Calls are pending that nobody may be waiting for.
  virtual bool HasBackgroundWork() = 0;

 private:
  enum class PollerKind { kNone, kIoThread, kWaiter };
  void Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs what was submitted meanwhile, then leaves the strand.
  void RunAndLeave();
  void HandToIoThreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  IoThread* const io_;
  const uint64_t id_;
  Mutex mutex_;
  CondVar free_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  int blocked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::AnyInvocable<void()>> inbox_ ABSL_GUARDED_BY(mutex_);
  PollerKind poller_kind_ ABSL_GUARDED_BY(mutex_) = PollerKind::kNone;
  Waiter* poller_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Waiter*> line_ ABSL_GUARDED_BY(mutex_);
  Interest interest_ ABSL_GUARDED_BY(mutex_);  // of the strand's last leaving
  Interest polled_ ABSL_GUARDED_BY(mutex_);    // what the poller was told last
  bool background_ ABSL_GUARDED_BY(mutex_) = false;
  bool armed_ ABSL_GUARDED_BY(mutex_) = false;     // in the I/O thread's epoll, not fired yet
  std::vector<absl::AnyInvocable<void()>> batch_;  // in the strand; keeps its capacity
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_DRIVER_H_
