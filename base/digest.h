// Part digests and roots.
//
//   part digest = XXH3-64 (seed 0) of the part's bytes
//   root        = XXH3-64 (seed 0) of: part digests (8 B each, little-endian, in order)
//                 || u64 chunk length || key id (16) || u16 shard
//
// The root covers the chunk's name, so that good bytes of another chunk never pass for this one.
// The specification of XXH3: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#ifndef CISTERN_BASE_DIGEST_H_
#define CISTERN_BASE_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace cistern {

using PartDigest = uint64_t;

PartDigest DigestOf(const void* data, size_t bytes);

// How a chunk of `length` bytes is cut into parts.
struct PartLayout {
  uint64_t length = 0;
  uint64_t part_bytes = 0;  // power of two >= 4096
  uint32_t count = 0;

  // `part_bytes` 0 = the default: the smallest power of two >= min(length, 1 MiB), at least 4096.
  // InvalidArgument: length outside [kMinChunkBytes, kMaxChunkBytes], part_bytes not a power of
  // two >= 4096, or more than kMaxParts parts.
  static absl::StatusOr<PartLayout> Make(uint64_t length, uint64_t part_bytes);
  uint64_t PartBegin(uint32_t part) const { return part * part_bytes; }
  uint64_t PartBytes(uint32_t part) const;
};

uint64_t RootDigest(absl::Span<const PartDigest> parts, uint64_t length, const ChunkName& name);

// Digests a stream piece by piece. Not thread-safe.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;
  void Reset();
  void Update(const void* data, size_t bytes);
  // Copies and digests in one pass. What is digested is what was copied, whatever becomes of `from`
  // meanwhile. They do not overlap. Long stretches are written past the caches.
  void CopyUpdate(void* to, const void* from, size_t bytes);
  PartDigest Finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The root of a chunk whose part digests, all of them, were fed to `parts` piece by piece. `parts`
// has to be reset before it is used again.
uint64_t RootDigest(DigestStream* parts, uint64_t length, const ChunkName& name);

// Feeds a chunk's bytes in order and collects its part digests. Not thread-safe.
class ChunkDigester {
 public:
  explicit ChunkDigester(const PartLayout& layout);
  // `bytes` may cross part boundaries; the sum must not exceed layout.length.
  void Update(const void* data, size_t bytes);
  // The same of what it copies: see DigestStream.
  void CopyUpdate(void* to, const void* from, size_t bytes);
  bool complete() const { return fed_ == layout_.length; }
  // Valid when complete().
  absl::Span<const PartDigest> parts() const { return parts_; }

 private:
  // `to` null: nothing is copied.
  void Feed(uint8_t* to, const uint8_t* from, size_t bytes);
  PartLayout layout_;
  uint64_t fed_ = 0;
  DigestStream stream_;
  std::vector<PartDigest> parts_;
};

}  // namespace cistern

#endif  // CISTERN_BASE_DIGEST_H_
