#include "tools/poolbench/threads.h"

#include <latch>
#include <thread>
#include <vector>

namespace cistern::poolbench {

void Work::Merge(const Work& other) {
  units += other.units;
  calls += other.calls;
  keys += other.keys;
  leased_calls += other.leased_calls;
  latency.Merge(other.latency);
  elapsed += other.elapsed;
}

absl::StatusOr<Work> RunThreads(uint64_t threads, Clock& clock,
                                const std::function<absl::StatusOr<Work>(uint64_t)>& body) {
  std::vector<absl::StatusOr<Work>> done(threads, absl::InternalError("not run"));
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
  const absl::Duration elapsed = clock.Mono() - begin;
  Work work;
  for (const absl::StatusOr<Work>& one : done) {
    if (!one.ok()) return one.status();
    work.Merge(*one);
  }
  work.elapsed = elapsed - work.elapsed / static_cast<double>(threads);
  return work;
}

}  // namespace cistern::poolbench
