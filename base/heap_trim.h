// Gives freed memory back to the system.
#ifndef CISTERN_BASE_HEAP_TRIM_H_
#define CISTERN_BASE_HEAP_TRIM_H_

#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace cistern {

// glibc keeps what is freed, for the arena that it came from, as long as anything behind it is in
// use. That is right for what comes and goes all the time; a burst (ten thousand connections at
// once, a backlog of records) leaves hundreds of MiB that nobody uses any more.
//
// Promise: when the process has become larger by `step_bytes` since it was last trimmed, and has
// not grown for a look, malloc_trim is called. So a process that only grows is rarely trimmed, and
// one that does not change never. Role: a daemon's clockwork looks once in a while, with no lock
// held: trimming takes some milliseconds for each 100 MiB, during which other threads of the same
// arena wait. Thread-safety: none.
class HeapTrimmer {
 public:
  struct Options {
    uint64_t step_bytes = uint64_t{32} << 20;
    absl::Duration every = absl::Seconds(1);  // looks in between do nothing
    // For tests; by default of this process.
    std::function<uint64_t()> resident_bytes;
    std::function<void()> trim;
  };
  explicit HeapTrimmer(Options options);

  // True when it has trimmed.
  bool Look(MonoTime now);

 private:
  const Options options_;
  MonoTime next_;
  uint64_t last_ = 0;  // at the last look
  uint64_t base_ = 0;  // after the last trim, or less
};

// Of this process; 0 when it cannot be read.
uint64_t OwnResidentBytes();

}  // namespace cistern

#endif  // CISTERN_BASE_HEAP_TRIM_H_
