// Identifiers and byte quantities as types of their own, so that swapped arguments do not compile.
#ifndef CISTERN_BASE_IDS_H_
#define CISTERN_BASE_IDS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cistern {

// A 16-byte identifier. `Tag` keeps the kinds apart; the bytes are opaque.
template <typename Tag>
struct Id128 {
  static constexpr size_t kBytes = 16;
  std::array<uint8_t, kBytes> bytes{};

  // Copies exactly 16 bytes from `p`.
  static Id128 FromBytes(const void* p) {
    Id128 id;
    std::memcpy(id.bytes.data(), p, kBytes);
    return id;
  }
  // InvalidArgument unless `s` has exactly 16 bytes.
  static absl::StatusOr<Id128> Parse(std::string_view s) {
    if (s.size() != kBytes) return absl::InvalidArgumentError("an id has 16 bytes");
    return FromBytes(s.data());
  }
  // InvalidArgument unless `hex` is 32 hexadecimal digits.
  static absl::StatusOr<Id128> ParseHex(std::string_view hex) {
    if (hex.size() != 2 * kBytes) return absl::InvalidArgumentError("an id has 32 hex digits");
    Id128 id;
    for (size_t i = 0; i < 2 * kBytes; ++i) {
      const char c = hex[i];
      int v = c >= '0' && c <= '9'   ? c - '0'
              : c >= 'a' && c <= 'f' ? c - 'a' + 10
              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                     : -1;
      if (v < 0) return absl::InvalidArgumentError("an id has 32 hex digits");
      id.bytes[i / 2] = static_cast<uint8_t>(id.bytes[i / 2] << 4 | v);
    }
    return id;
  }
  bool IsZero() const { return *this == Id128{}; }
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), kBytes}; }
  std::string ToHex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    out.reserve(2 * kBytes);
    for (uint8_t b : bytes) {
      out.push_back(kDigits[b >> 4]);
      out.push_back(kDigits[b & 15]);
    }
    return out;
  }
  // The first and second 8 bytes, little-endian: input for mixing, never a hash by themselves
  // (ids come from outside and can be crafted; mix with a per-process seed before bucketing).
  uint64_t word(int i) const {
    uint64_t w;
    std::memcpy(&w, bytes.data() + 8 * i, 8);
    return w;
  }
  friend bool operator==(const Id128&, const Id128&) = default;
  friend auto operator<=>(const Id128&, const Id128&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id128& id) {
    return H::combine(std::move(h), id.word(0), id.word(1));
  }
};

using KeyId = Id128<struct KeyIdTag>;              // first half of SHA-256(seed, len, key)
using NamespaceId = Id128<struct NamespaceIdTag>;  // derived: see base/key_hash.h
using StoreId = Id128<struct StoreIdTag>;
using PoolId = Id128<struct PoolIdTag>;
using SegmentId = Id128<struct SegmentIdTag>;
using LeaseId = Id128<struct LeaseIdTag>;
using OperationId = Id128<struct OperationIdTag>;
using BootId = Id128<struct BootIdTag>;

// A number that is not interchangeable with others of another `Tag`.
template <typename Tag, typename Rep>
struct StrongInt {
  using rep = Rep;
  Rep value{};
  constexpr StrongInt() = default;
  explicit constexpr StrongInt(Rep v) : value(v) {}
  friend auto operator<=>(const StrongInt&, const StrongInt&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StrongInt& v) {
    return H::combine(std::move(h), v.value);
  }
};

// Tensor-parallel rank and the like, beside the key id: 0 to 4095.
struct Shard : StrongInt<struct ShardTag, uint16_t> {
  static constexpr uint16_t kMax = 4095;
  using StrongInt::StrongInt;
};
// A store-wide event number given at commit; never runs backwards. 0 = none. 40 bits in the index.
struct Version : StrongInt<struct VersionTag, uint64_t> {
  static constexpr uint64_t kMax = (uint64_t{1} << 40) - 1;
  using StrongInt::StrongInt;
};
// The master's fencing number.
struct Epoch : StrongInt<struct EpochTag, uint64_t> {
  using StrongInt::StrongInt;
};
// A process's random number, new at each start.
struct Incarnation : StrongInt<struct IncarnationTag, uint64_t> {
  using StrongInt::StrongInt;
};
// The master's dense number of a store; 0xFFFF = none.
struct StoreIndex : StrongInt<struct StoreIndexTag, uint16_t> {
  static constexpr uint16_t kNone = 0xFFFF;
  using StrongInt::StrongInt;
};
// A header's reuse counter.
struct Generation : StrongInt<struct GenerationTag, uint32_t> {
  using StrongInt::StrongInt;
};
// Position of a header in its segment's table.
struct HeaderIndex : StrongInt<struct HeaderIndexTag, uint32_t> {
  using StrongInt::StrongInt;
};

// What names a chunk inside a pool.
struct ChunkName {
  KeyId id;
  Shard shard;
  friend bool operator==(const ChunkName&, const ChunkName&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ChunkName& n) {
    return H::combine(std::move(h), n.id, n.shard);
  }
};

// {offset, length} inside a segment, 4 KiB aligned.
struct Extent {
  static constexpr uint64_t kAlignment = 4096;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t end() const { return offset + bytes; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

inline constexpr uint64_t kMinChunkBytes = 4096;
inline constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 30;
inline constexpr uint64_t kDefaultPartBytes = uint64_t{1} << 20;
inline constexpr uint64_t kMinPartBytes = 4096;
inline constexpr uint32_t kMaxParts = 65536;
inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr size_t kMaxKeysPerRequest = 32768;

inline constexpr uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// virtual bucket of a key id: its first 12 bits.
inline constexpr int kVirtualBuckets = 4096;
inline int VirtualBucket(const KeyId& id) { return id.bytes[0] << 4 | id.bytes[1] >> 4; }

}  // namespace cistern

#endif  // CISTERN_BASE_IDS_H_
