// Pseudo-random numbers that are the same on every machine (the standard library's distributions
// are not). SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#ifndef CISTERN_TOOLS_REPLAY_RANDOM_H_
#define CISTERN_TOOLS_REPLAY_RANDOM_H_

#include <cmath>
#include <cstdint>

namespace cistern::replay {

// SplitMix64's finaliser: every input bit changes about half of the output's.
inline constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline constexpr uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// Not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix64(state_ += kGoldenGamma); }
  // Below n, which must not be 0. (The bias is n / 2^64.)
  uint64_t Below(uint64_t n) { return Next() % n; }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // Exponentially distributed, rounded down.
  uint64_t Exponential(double mean) { return static_cast<uint64_t>(-mean * std::log1p(-Unit())); }

 private:
  uint64_t state_;
};

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_RANDOM_H_
