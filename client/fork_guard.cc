#include "client/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace cistern {
namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<uint64_t> g_generation{0};

uint64_t Generation() {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return g_generation.load(std::memory_order_relaxed);
}

}  // namespace

ForkGuard::ForkGuard() : generation_(Generation()) {}

bool ForkGuard::Forked() const {
  return g_generation.load(std::memory_order_relaxed) != generation_;
}

absl::Status ForkGuard::Check() const {
  if (!Forked()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked after the client connected: connect anew in the child");
}

}  // namespace cistern
