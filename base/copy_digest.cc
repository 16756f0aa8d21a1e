// The long form of XXH3-64 (seed 0, default secret) after its specification:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#include "base/copy_digest.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "xxhash.h"
#if defined(__x86_64__)
#include <immintrin.h>
#define CISTERN_AVX2 __attribute__((target("avx2")))
#endif

namespace cistern {
namespace {

#if defined(__x86_64__)

constexpr uint64_t kPrime32_1 = 0x9E3779B1;
constexpr uint64_t kPrime32_2 = 0x85EBCA77;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5;
constexpr int kStripes = 16;  // of a block

alignas(64) constexpr uint8_t kSecret[] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
static_assert(sizeof(kSecret) == 192);

// Where in the secret: a block's end, the last stripe, the merging.
constexpr size_t kScrambleAt = 128;
constexpr size_t kLastStripeAt = 121;
constexpr size_t kMergeAt = 11;

CISTERN_AVX2 inline __m256i Load(const void* at) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

CISTERN_AVX2 inline __m256i Accumulate(__m256i acc, __m256i data, const uint8_t* secret) {
  const __m256i keyed = _mm256_xor_si256(data, Load(secret));
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(product, _mm256_add_epi64(acc, swapped));
}

CISTERN_AVX2 inline __m256i Scramble(__m256i acc, const uint8_t* secret) {
  acc = _mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47));
  acc = _mm256_xor_si256(acc, Load(secret));
  const __m256i prime = _mm256_set1_epi64x(static_cast<int64_t>(kPrime32_1));
  const __m256i low = _mm256_mul_epu32(acc, prime);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(acc, 32), prime);
  return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

enum class Store { kNone, kPlain, kStreamed };

template <Store kStore>
CISTERN_AVX2 inline void Put(uint8_t* to, __m256i data) {
  if constexpr (kStore == Store::kPlain) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), data);
  if constexpr (kStore == Store::kStreamed)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), data);
}

template <Store kStore>
CISTERN_AVX2 void Blocks(uint64_t* accumulators, uint8_t* to, const uint8_t* from, size_t blocks) {
  __m256i a = Load(accumulators);
  __m256i b = Load(accumulators + 4);
  for (; blocks > 0; --blocks) {
    for (int i = 0; i < kStripes; ++i) {
      const __m256i x = Load(from);
      const __m256i y = Load(from + 32);
      if constexpr (kStore != Store::kNone) {
        Put<kStore>(to, x);
        Put<kStore>(to + 32, y);
        to += 64;
      }
      a = Accumulate(a, x, kSecret + 8 * i);
      b = Accumulate(b, y, kSecret + 8 * i + 32);
      from += 64;
    }
    a = Scramble(a, kSecret + kScrambleAt);
    b = Scramble(b, kSecret + kScrambleAt + 32);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(accumulators), a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(accumulators + 4), b);
  // Streamed stores are seen by others in no order before it.
  if constexpr (kStore == Store::kStreamed) _mm_sfence();
}

CISTERN_AVX2 void Stripe(uint64_t* accumulators, const uint8_t* data, const uint8_t* secret) {
  for (int i = 0; i < 2; ++i) {
    const __m256i acc =
        Accumulate(Load(accumulators + 4 * i), Load(data + 32 * i), secret + 32 * i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(accumulators + 4 * i), acc);
  }
}

uint64_t SecretWord(size_t at) {
  uint64_t word;
  std::memcpy(&word, kSecret + at, sizeof(word));
  return word;
}

uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

#endif  // __x86_64__

}  // namespace

#if defined(__x86_64__)

bool CopyDigest::Supported() {
  static const bool supported = __builtin_cpu_supports("avx2") != 0;
  return supported;
}

void CopyDigest::Reset() {
  constexpr uint64_t kStart[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                  kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  std::copy_n(kStart, 8, acc_);
  pending_bytes_ = 0;
  total_ = 0;
}

template <bool kCopy>
void CopyDigest::Feed(uint8_t* to, const uint8_t* from, size_t bytes) {
  const auto keep = [&](size_t n) {
    if (kCopy) std::memcpy(to, from, n);
    // From the copy: a second look at the source might see something else.
    std::memcpy(pending_ + pending_bytes_, kCopy ? to : from, n);
    pending_bytes_ += n;
    if (kCopy) to += n;
    from += n;
    bytes -= n;
  };
  if (bytes == 0) return;
  total_ += bytes;
  if (pending_bytes_ > 0 || bytes <= kBlockBytes) {
    keep(std::min(bytes, kBlockBytes - pending_bytes_));
    if (bytes == 0) return;
    Blocks<Store::kNone>(acc_, nullptr, pending_, 1);
    std::memcpy(last_stripe_, pending_ + kBlockBytes - kStripeBytes, kStripeBytes);
    pending_bytes_ = 0;
  }
  if (const size_t blocks = (bytes - 1) / kBlockBytes; blocks > 0) {
    const size_t n = blocks * kBlockBytes;
    if (!kCopy) {
      Blocks<Store::kNone>(acc_, nullptr, from, blocks);
    } else if (n >= kStreamedBytes && reinterpret_cast<uintptr_t>(to) % 32 == 0) {
      Blocks<Store::kStreamed>(acc_, to, from, blocks);
    } else {
      Blocks<Store::kPlain>(acc_, to, from, blocks);
    }
    std::memcpy(last_stripe_, (kCopy ? to : from) + n - kStripeBytes, kStripeBytes);
    if (kCopy) to += n;
    from += n;
    bytes -= n;
  }
  keep(bytes);
}

void CopyDigest::CopyUpdate(void* to, const void* from, size_t bytes) {
  Feed<true>(static_cast<uint8_t*>(to), static_cast<const uint8_t*>(from), bytes);
}

void CopyDigest::Update(const void* data, size_t bytes) {
  Feed<false>(nullptr, static_cast<const uint8_t*>(data), bytes);
}

uint64_t CopyDigest::Finish() const {
  if (total_ <= kBlockBytes) return XXH3_64bits(pending_, total_);
  uint64_t acc[8];
  std::copy_n(acc_, 8, acc);
  const size_t stripes = (pending_bytes_ - 1) / kStripeBytes;  // at least a byte is pending
  for (size_t i = 0; i < stripes; ++i) Stripe(acc, pending_ + i * kStripeBytes, kSecret + 8 * i);
  // The last 64 bytes, wherever stripes begin.
  uint8_t last[kStripeBytes];
  const size_t from_pending = std::min(pending_bytes_, kStripeBytes);
  std::memcpy(last, last_stripe_ + from_pending, kStripeBytes - from_pending);
  std::memcpy(last + kStripeBytes - from_pending, pending_ + pending_bytes_ - from_pending,
              from_pending);
  Stripe(acc, last, kSecret + kLastStripeAt);
  uint64_t hash = total_ * kPrime64_1;
  for (size_t i = 0; i < 4; ++i) {
    hash += FoldedProduct(acc[2 * i] ^ SecretWord(kMergeAt + 16 * i),
                          acc[2 * i + 1] ^ SecretWord(kMergeAt + 16 * i + 8));
  }
  hash ^= hash >> 37;
  hash *= 0x165667919E3779F9;
  return hash ^ (hash >> 32);
}

#else

bool CopyDigest::Supported() { return false; }
void CopyDigest::Reset() {}
void CopyDigest::CopyUpdate(void*, const void*, size_t) { std::abort(); }
void CopyDigest::Update(const void*, size_t) { std::abort(); }
uint64_t CopyDigest::Finish() const { return 0; }

#endif

}  // namespace cistern
