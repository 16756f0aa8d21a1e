#include "tools/replay/chunk_pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

std::vector<uint8_t> Bytes(uint64_t seed, uint64_t chunk, size_t size) {
  std::vector<uint8_t> out(size);
  ChunkPattern(seed, chunk).Fill(out.data(), size);
  return out;
}

// Worked out with Python's integers from the formula in the header.
TEST(ChunkPatternTest, WordsAreThoseOfTheFormula) {
  const std::vector<uint8_t> bytes = Bytes(7, 123456, 48);
  uint64_t words[6];
  std::memcpy(words, bytes.data(), 48);
  EXPECT_EQ(words[0], 0x8cbf594c8410de32u);
  EXPECT_EQ(words[1], 0x2a67df1604da5a1fu);
  EXPECT_EQ(words[5], 0xa385b62c01e4aaabu);
}

TEST(ChunkPatternTest, ALengthThatIsNoMultipleOfAWordIsAPrefix) {
  const std::vector<uint8_t> whole = Bytes(1, 2, 4160);
  for (size_t size : {0, 1, 7, 31, 33, 4097, 4159}) {
    const std::vector<uint8_t> part = Bytes(1, 2, size);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << size;
    EXPECT_EQ(ChunkPattern(1, 2).Verify(part.data(), size), size);
  }
}

TEST(ChunkPatternTest, FindsEveryWrongByte) {
  constexpr size_t kSize = 301;
  std::vector<uint8_t> bytes = Bytes(5, 99, kSize);
  const ChunkPattern pattern(5, 99);
  for (size_t at = 0; at < kSize; ++at) {
    bytes[at] ^= 0x10;
    EXPECT_EQ(pattern.Verify(bytes.data(), kSize), at);
    bytes[at] ^= 0x10;
  }
  EXPECT_EQ(pattern.Verify(bytes.data(), kSize), kSize);
}

TEST(ChunkPatternTest, AnotherChunkAnotherSeedOrAnotherPlaceIsWrongAtOnce) {
  const std::vector<uint8_t> bytes = Bytes(5, 99, 8192);
  EXPECT_LT(ChunkPattern(5, 100).Verify(bytes.data(), 8192), 8u);
  EXPECT_LT(ChunkPattern(6, 99).Verify(bytes.data(), 8192), 8u);
  EXPECT_LT(ChunkPattern(5, 99).Verify(bytes.data() + 4096, 4096), 8u);
}

}  // namespace
}  // namespace cistern::replay
