// What one Get request asks a store for, and what came of it.
#ifndef CISTERN_CLIENT_GET_BATCH_H_
#define CISTERN_CLIENT_GET_BATCH_H_

#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "client/client.h"
#include "client/memory_ref.h"

namespace cistern {

// What part of each of its chunks a request is after.
struct GetSelection {
  enum class Kind : uint8_t { kWhole, kParts, kRange };
  Kind kind = Kind::kWhole;
  uint32_t first_part = 0;  // kParts
  uint32_t part_count = 0;
  bool any_length = false;  // targets may be longer than what comes
  friend bool operator==(const GetSelection&, const GetSelection&) = default;
};

// The front of a chunk that is in place already, verified, from another replica or an earlier try:
// what comes behind it must be of the very same chunk.
struct GetFront {
  uint32_t parts = 0;  // 0 = none
  uint64_t length = 0;
  uint64_t part_bytes = 0;
  uint64_t root = 0;
};

struct GetTarget {
  ChunkName name;
  MemoryRef memory;
  uint64_t memory_skip = 0;   // of the memory: the front's bytes
  uint64_t range_offset = 0;  // kRange
  uint64_t range_bytes = 0;
  GetFront front = {};
  bool check = true;  // compare with the digests

  uint64_t room() const { return memory.bytes() - memory_skip; }
};

struct GetBatch {
  GetSelection selection;
  GetOrder order = GetOrder::kByChunk;
  std::vector<GetTarget> targets;
};

struct GetOutcome {
  ChunkCode code = ChunkCode::kUnavailable;
  bool verified = false;
  bool mismatch = false;  // its bytes came and did not fit their digests
  bool told = false;      // the observer has taken this one over
  uint64_t length = 0;    // of the chunk
  uint64_t version = 0;
  // By part: of the parts asked for, those before `front.parts` are in place, although the chunk
  // as a whole may have failed. Where some of them are verified, these only.
  GetFront front = {};
  bool front_verified = false;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_BATCH_H_
