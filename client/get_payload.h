// Where a get's payload goes: straight into the caller's memory, verified part by part as it lands.
#ifndef CISTERN_CLIENT_GET_PAYLOAD_H_
#define CISTERN_CLIENT_GET_PAYLOAD_H_

#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "client/memory_ref.h"
#include "transport/payload.h"

namespace cistern {

// One chunk of the stream, as the store's head described it: the digests of parts
// [first_part, first_part + part_count), then the bytes [begin, end) of the chunk. With a run of
// parts both say the same; with a byte range the parts are those wholly inside it.
struct GetChunk {
  MemoryRef memory;  // at least end - begin bytes
  PartLayout layout;
  ChunkName name;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t first_part = 0;
  uint32_t part_count = 0;  // 0: no digests come
  uint64_t root = 0;

  bool whole() const { return part_count == layout.count; }
  uint64_t digest_bytes() const { return sizeof(PartDigest) * part_count; }
  uint64_t stream_bytes() const { return digest_bytes() + (end - begin); }
};

// Describes a get of all of a chunk, a run of its parts (count 0, or beyond the end = to the end),
// or a byte range. InvalidArgument: not inside the chunk. `digests` false: the chunk has none.
absl::Status SelectWhole(bool digests, GetChunk* chunk);
absl::Status SelectParts(uint32_t first, uint32_t count, bool digests, GetChunk* chunk);
absl::Status SelectRange(uint64_t offset, uint64_t bytes, bool digests, GetChunk* chunk);

class GetPayload final : public transport::PayloadSink {
 public:
  enum class Verdict : uint8_t {
    kPending,     // not all of it has landed
    kVerified,    // every byte is under a digest that fits, and so is the name where all parts came
    kUnverified,  // landed; some bytes have no digest to hold them to
    kBad,         // a digest did not fit
  };

  GetPayload() = default;
  explicit GetPayload(std::vector<GetChunk> chunks);

  uint64_t stream_bytes() const { return stream_bytes_; }
  Verdict verdict(size_t chunk) const { return verdicts_[chunk]; }

  void NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  absl::Status Landed(size_t bytes) override;

 private:
  struct Position {
    size_t chunk = 0;
    uint64_t done = 0;  // of its stream
    MemoryCursor memory;
  };

  // The memory at a position that lies together, and belongs to one part (or gap between parts).
  iovec PieceAt(const Position& at, uint64_t max_bytes);
  void Move(uint64_t bytes, Position* at) const;
  // Digests what landed at the position (before it moves).
  void Digest(const iovec& piece);
  void EndChunk();

  std::vector<GetChunk> chunks_;
  std::vector<Verdict> verdicts_;
  std::vector<size_t> first_digest_;  // per chunk: in digests_
  std::vector<PartDigest> digests_;   // as they arrive
  uint64_t stream_bytes_ = 0;

  Position landed_;
  DigestStream stream_;  // of the part under way
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_PAYLOAD_H_
