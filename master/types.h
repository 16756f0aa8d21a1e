// Words that the master's classes share.
#ifndef CISTERN_MASTER_TYPES_H_
#define CISTERN_MASTER_TYPES_H_

#include <cstdint>

#include "base/ids.h"

namespace cistern::master {

// Dense number of a namespace inside this process; 20 bits in an index entry.
struct NamespaceIndex : StrongInt<struct NamespaceIndexTag, uint32_t> {
  static constexpr uint32_t kMax = (1u << 20) - 2;
  static constexpr uint32_t kNone = (1u << 20) - 1;
  using StrongInt::StrongInt;
  bool none() const { return value == kNone; }
};

// Position of a chunk's entry in the index; stays the same while the chunk has a replica.
struct EntryIndex : StrongInt<struct EntryIndexTag, uint32_t> {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  using StrongInt::StrongInt;
  bool none() const { return value == kNone; }
};

// One store's stream, as the shell numbers it; never used twice.
struct SessionId : StrongInt<struct SessionIdTag, uint64_t> {
  using StrongInt::StrongInt;
};

// Names a removal that waits for the stores' records.
struct RemovalTicket : StrongInt<struct RemovalTicketTag, uint64_t> {
  using StrongInt::StrongInt;
};

// A set of media (wire::Tier bits): DRAM 1, SSD 2, cold 4.
using TierMask = uint8_t;
inline constexpr TierMask kDram = 1;
inline constexpr TierMask kSsd = 2;
inline constexpr TierMask kCold = 4;
inline constexpr TierMask kAllTiers = 7;
inline constexpr int kTierCount = 3;

// Keys or records that one step of a sliced call handles before the caller may let others in. Each
// costs up to a microsecond where nothing of it is in the cache; taking the lock anew, a tenth.
inline constexpr uint32_t kSliceKeys = 128;

// What a chunk of `length` bytes takes from a segment, as far as the master can tell.
inline constexpr uint64_t ExtentBytesFor(uint32_t length) {
  return RoundUp(length, Extent::kAlignment);
}

}  // namespace cistern::master

#endif  // CISTERN_MASTER_TYPES_H_
