// Which chunks a get checks in a namespace with Verify::kSampled.
#ifndef CISTERN_CLIENT_VERIFY_SAMPLE_H_
#define CISTERN_CLIENT_VERIFY_SAMPLE_H_

#include <atomic>
#include <cstdint>

#include "client/client.h"

namespace cistern {

// Thread-safe. Draws anew for every chunk of every get: one that always escaped would be a chunk
// that nobody ever checks.
class VerifySample {
 public:
  explicit VerifySample(uint64_t seed) : state_(seed) {}

  // True once in kVerifySampleOneIn.
  bool Draw() {
    // splitmix64: a step of its state is one addition, so many threads can share it.
    uint64_t z = state_.fetch_add(0x9E3779B97F4A7C15u, std::memory_order_relaxed);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % kVerifySampleOneIn == 0;
  }
  bool Checks(Verify verify) {
    return verify == Verify::kAlways || (verify == Verify::kSampled && Draw());
  }

 private:
  std::atomic<uint64_t> state_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_VERIFY_SAMPLE_H_
