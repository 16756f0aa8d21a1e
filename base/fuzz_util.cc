#include "base/fuzz_util.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <utility>

namespace cistern {
namespace {

// The same in every run unless someone asks for another: a test that fails now and then is worse
// than one that looks at the same inputs.
uint64_t Seed() {
  const char* text = std::getenv("CISTERN_FUZZ_SEED");  // lint: allow(getenv): main() is gtest's
  return text == nullptr ? 20'260'101 : std::strtoull(text, nullptr, 10);
}

}  // namespace

FuzzCorpus::FuzzCorpus(std::vector<std::string> seeds, size_t max_bytes)
    : seeds_(std::move(seeds)), max_bytes_(max_bytes) {
  const uint64_t seed = Seed();
  std::cerr << "CISTERN_FUZZ_SEED=" << seed << std::endl;
  random_.seed(seed);
}

void FuzzCorpus::Run(int count, int (*target)(const uint8_t* data, size_t size)) {
  const auto feed = [target](const std::string& input) {
    // A copy of exactly its size on the heap: AddressSanitizer sees one byte too many.
    const std::vector<uint8_t> exact(input.begin(), input.end());
    target(exact.data(), exact.size());
  };
  feed("");
  for (const std::string& seed : seeds_) feed(seed.substr(0, max_bytes_));
  for (int i = 0; i < count; ++i) feed(Next());
}

std::string FuzzCorpus::Next() {
  std::string input;
  if (!seeds_.empty() && Below(16) != 0) {
    input = seeds_[Below(seeds_.size())];
    for (size_t rounds = 1 + Below(8); rounds > 0; --rounds) Mutate(&input);
  } else {
    input.resize(Below(std::min<size_t>(max_bytes_, 256)));
    for (char& c : input) c = static_cast<char>(random_());
  }
  if (input.size() > max_bytes_) input.resize(max_bytes_);
  return input;
}

void FuzzCorpus::Mutate(std::string* input) {
  static constexpr char kLimits[] = {0, 1, 0x7f, static_cast<char>(0x80), static_cast<char>(0xff)};
  const size_t at = Below(input->size());
  const size_t length = Below(std::min<size_t>(input->size() - at, 64) + 1);
  switch (Below(7)) {
    case 0:
      if (!input->empty()) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
      break;
    case 1:
      if (!input->empty()) (*input)[at] = static_cast<char>(random_());
      break;
    case 2:
      if (!input->empty()) (*input)[at] = kLimits[Below(sizeof(kLimits))];
      break;
    case 3:
      input->erase(at, length);
      break;
    case 4:
      input->insert(Below(input->size() + 1), input->substr(at, length));
      break;
    case 5:
      input->resize(at);
      break;
    case 6: {
      const std::string& other = seeds_[Below(seeds_.size())];
      const size_t from = Below(other.size());
      input->insert(at, other.substr(from, Below(64) + 1));
      break;
    }
  }
}

}  // namespace cistern
