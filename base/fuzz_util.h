// What every fuzz target shares. A target defines LLVMFuzzerTestOneInput, so that a libFuzzer build
// can drive it, and an ordinary test that feeds it a seeded corpus:
//
//   TEST(FooFuzzTest, SurvivesMutatedInput) {
//     FuzzCorpus corpus({"a good input", "another"}, /*max_bytes=*/4096);
//     corpus.Run(10'000, LLVMFuzzerTestOneInput);
//   }
//
// For tests only.
#ifndef CISTERN_BASE_FUZZ_UTIL_H_
#define CISTERN_BASE_FUZZ_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace cistern {

// Makes inputs by mutating good ones: flipped bits, bytes at their limits, pieces cut, doubled and
// joined, and now and then noise. The seed is printed; CISTERN_FUZZ_SEED repeats a run.
// Not thread-safe.
class FuzzCorpus {
 public:
  FuzzCorpus(std::vector<std::string> seeds, size_t max_bytes);

  // Calls `target` with `count` inputs of at most max_bytes, the good ones first.
  void Run(int count, int (*target)(const uint8_t* data, size_t size));

 private:
  std::string Next();
  void Mutate(std::string* input);
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  const std::vector<std::string> seeds_;
  const size_t max_bytes_;
  std::mt19937_64 random_;
};

}  // namespace cistern

#endif  // CISTERN_BASE_FUZZ_UTIL_H_
