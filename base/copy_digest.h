// XXH3-64 of a stream that is copied while it is digested: one pass over memory instead of two.
//
// The library's functions read what they digest; whoever copies first and digests afterwards goes
// over the bytes twice, and what it copies from may not be believed in between. Here each byte is
// read once, into a register, from where it is both stored and digested.
#ifndef CISTERN_BASE_COPY_DIGEST_H_
#define CISTERN_BASE_COPY_DIGEST_H_

#include <cstddef>
#include <cstdint>

namespace cistern {

// Not thread-safe. Copyable.
class CopyDigest {
 public:
  // Whether this processor can (AVX2). Precondition of all others.
  static bool Supported();

  CopyDigest() { Reset(); }
  void Reset();
  // Copies, and digests exactly what was copied, though `from` may change meanwhile. `to` and
  // `from` do not overlap. Stretches of kStreamedBytes and more are written past the caches where
  // `to` allows it (a multiple of 32 at multiples of 1024 bytes of the stream).
  void CopyUpdate(void* to, const void* from, size_t bytes);
  // Digests without copying.
  void Update(const void* data, size_t bytes);
  uint64_t Finish() const;

  static constexpr size_t kStreamedBytes = 32 << 10;

 private:
  static constexpr size_t kBlockBytes = 1024;  // of XXH3, with its own secret
  static constexpr size_t kStripeBytes = 64;
  template <bool kCopy>
  void Feed(uint8_t* to, const uint8_t* from, size_t bytes);

  alignas(32) uint64_t acc_[8];
  // What was not digested yet: a block is when a byte behind it is known.
  alignas(32) uint8_t pending_[kBlockBytes];
  uint8_t last_stripe_[kStripeBytes];  // of what was digested
  size_t pending_bytes_;
  uint64_t total_;
};

}  // namespace cistern

#endif  // CISTERN_BASE_COPY_DIGEST_H_
