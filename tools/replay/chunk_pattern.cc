#include "tools/replay/chunk_pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/replay/random.h"

namespace cistern::replay {
namespace {

static_assert(std::endian::native == std::endian::little);

// Four words at a time: the compilers turn these into vector instructions at every -O level.
using Vector = uint64_t __attribute__((vector_size(32)));
constexpr size_t kVectorBytes = sizeof(Vector);
constexpr size_t kWordsPerVector = kVectorBytes / 8;

}  // namespace

ChunkPattern::ChunkPattern(uint64_t seed, uint64_t chunk)
    : a_(Mix64(Mix64(seed + kGoldenGamma) + chunk)), b_(Mix64(a_ ^ chunk)) {}

uint64_t ChunkPattern::Word(uint64_t i) const { return (a_ + i * kGoldenGamma) ^ b_; }

void ChunkPattern::Fill(void* out, size_t bytes) const {
  auto* to = static_cast<uint8_t*>(out);
  const Vector flip = {b_, b_, b_, b_};
  constexpr uint64_t kStep = kWordsPerVector * kGoldenGamma;
  const Vector step = {kStep, kStep, kStep, kStep};
  Vector count = {a_, a_ + kGoldenGamma, a_ + 2 * kGoldenGamma, a_ + 3 * kGoldenGamma};
  size_t at = 0;
  for (; at + kVectorBytes <= bytes; at += kVectorBytes) {
    const Vector words = count ^ flip;
    std::memcpy(to + at, &words, kVectorBytes);
    count += step;
  }
  for (; at < bytes; at += 8) {
    const uint64_t word = Word(at / 8);
    std::memcpy(to + at, &word, std::min<size_t>(8, bytes - at));
  }
}

size_t ChunkPattern::Verify(const void* in, size_t bytes) const {
  const auto* from = static_cast<const uint8_t*>(in);
  const Vector flip = {b_, b_, b_, b_};
  constexpr uint64_t kStep = kWordsPerVector * kGoldenGamma;
  const Vector step = {kStep, kStep, kStep, kStep};
  Vector count = {a_, a_ + kGoldenGamma, a_ + 2 * kGoldenGamma, a_ + 3 * kGoldenGamma};
  Vector wrong = {0, 0, 0, 0};
  const size_t vector_end = bytes - bytes % kVectorBytes;
  for (size_t at = 0; at < vector_end; at += kVectorBytes) {
    Vector words;
    std::memcpy(&words, from + at, kVectorBytes);
    wrong |= words ^ count ^ flip;
    count += step;
  }
  const bool vectors_right = (wrong[0] | wrong[1] | wrong[2] | wrong[3]) == 0;
  // The rest, or everything again to find the place.
  for (size_t at = vectors_right ? vector_end : 0; at < bytes; ++at) {
    if (from[at] != static_cast<uint8_t>(Word(at / 8) >> (8 * (at % 8)))) return at;
  }
  return bytes;
}

}  // namespace cistern::replay
