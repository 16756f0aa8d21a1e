// Bytes of a chunk that can be told from its id alone, so that whoever gets the chunk can say of
// every byte whether it is right.
//
// Word i (8 bytes, little-endian) = (a + i * golden gamma) ^ b, where a and b are mixed from the id
// and the replay's seed. Another chunk's bytes, the right bytes at a wrong place and stale bytes
// differ in nearly every word. Add and xor only, so that both directions run at memory speed.
#ifndef CISTERN_TOOLS_REPLAY_CHUNK_PATTERN_H_
#define CISTERN_TOOLS_REPLAY_CHUNK_PATTERN_H_

#include <cstddef>
#include <cstdint>

namespace cistern::replay {

class ChunkPattern {
 public:
  ChunkPattern(uint64_t seed, uint64_t chunk);

  // Writes the chunk's first `bytes` bytes.
  void Fill(void* out, size_t bytes) const;
  // The offset of the first byte that is wrong; `bytes` if none is. Compares every byte.
  size_t Verify(const void* in, size_t bytes) const;

 private:
  uint64_t Word(uint64_t i) const;

  uint64_t a_;
  uint64_t b_;
};

}  // namespace cistern::replay

#endif  // CISTERN_TOOLS_REPLAY_CHUNK_PATTERN_H_
