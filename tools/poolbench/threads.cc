#include "tools/poolbench/threads.h"

#include <latch>
#include <thread>
#include <vector>

namespace cistern::poolbench {

absl::StatusOr<Work> RunThreads(uint64_t threads, Clock& clock,
                                const std::function<absl::StatusOr<double>(uint64_t)>& body) {
  std::vector<absl::StatusOr<double>> done(threads, absl::InternalError("not run"));
  std::latch ready(static_cast<std::ptrdiff_t>(threads));
  std::latch start(1);
  std::vector<std::thread> running;
  running.reserve(threads);
  for (uint64_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ready.count_down();
      start.wait();
      done[i] = body(i);
    });
  }
  ready.wait();
  const MonoTime begin = clock.Mono();
  start.count_down();
  for (std::thread& thread : running) thread.join();
  Work work;
  work.elapsed = clock.Mono() - begin;
  for (const absl::StatusOr<double>& units : done) {
    if (!units.ok()) return units.status();
    work.units += *units;
  }
  return work;
}

}  // namespace cistern::poolbench
