// A thread that waits for calls and can be woken from its poll().
#ifndef CISTERN_TRANSPORT_WAITER_H_
#define CISTERN_TRANSPORT_WAITER_H_

namespace cistern::transport {

// One per thread, made when it first waits. Wake may be called from any thread while the waiter is
// registered somewhere (whoever registers it takes it out again before its thread moves on).
class Waiter {
 public:
  // The calling thread's own; a fork child gets another than its parent had.
  static Waiter& ForThisThread();
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Ends the thread's current or next poll of fd(). A thread need not wake itself: nothing happens.
  void Wake();
  void Drain();
  // -1 when the process has no more descriptors: then nothing wakes it, and it looks by itself.
  int fd() const { return fd_; }

 private:
  explicit Waiter(unsigned fork_generation);
  const unsigned fork_generation_;
  int fd_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_WAITER_H_
