#include "transport/waiter.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace cistern::transport {
namespace {

// Counts the forks between this process and the one that was started: an eventfd inherited over a
// fork is still the parent's.
std::atomic<unsigned> g_fork_generation{0};
pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;

void CountForks() {
  pthread_atfork(nullptr, nullptr,
                 [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
}

thread_local std::unique_ptr<Waiter> t_waiter;

}  // namespace

Waiter& Waiter::ForThisThread() {
  pthread_once(&g_fork_once, CountForks);
  const unsigned generation = g_fork_generation.load(std::memory_order_relaxed);
  // One without a descriptor is made anew: there may be one by now.
  if (t_waiter == nullptr || t_waiter->fork_generation_ != generation || t_waiter->fd_ < 0) {
    t_waiter.reset(new Waiter(generation));
  }
  return *t_waiter;
}

Waiter::Waiter(unsigned fork_generation)
    : fork_generation_(fork_generation), fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Waiter::~Waiter() {
  if (fd_ >= 0) close(fd_);
}

void Waiter::Wake() {
  if (t_waiter.get() == this || fd_ < 0) return;
  const uint64_t one = 1;
  // EAGAIN (the counter is full) means that a wake-up is pending already.
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof(one));
}

void Waiter::Drain() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof(count));
}

}  // namespace cistern::transport
