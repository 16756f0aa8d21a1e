// Where a get's payload goes: straight into the caller's memory, verified part by part as it lands.
//
//   by chunk: for each chunk its part table, then its bytes
//   by part:  the part tables of all chunks, then their bytes in the order of base/part_order.h
//
// A part table that comes is whole, and is held to the chunk's root, and so to its name, before any
// byte of the chunk is.
#ifndef CISTERN_CLIENT_GET_PAYLOAD_H_
#define CISTERN_CLIENT_GET_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/digest.h"
#include "client/memory_ref.h"
#include "transport/payload.h"

namespace cistern {

// One chunk of the stream, as the store's head described it: all of its part table if some part
// lies wholly in what was asked for (and it has digests at all), and the bytes [begin, end).
struct GetChunk {
  MemoryRef memory;
  uint64_t memory_skip = 0;  // bytes in front that are not for this stream
  PartLayout layout;
  ChunkName name;
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t first_part = 0;  // the parts wholly inside
  uint32_t part_count = 0;
  bool table = false;  // its part table comes
  bool check = true;   // false: what comes is taken as it is (see Verify)
  uint64_t root = 0;

  uint64_t table_bytes() const { return table ? sizeof(PartDigest) * layout.count : 0; }
  uint64_t stream_bytes() const { return table_bytes() + (end - begin); }
  // The parts that [begin, end) has bytes of.
  uint32_t touched_first() const { return static_cast<uint32_t>(begin / layout.part_bytes); }
  uint32_t touched_end() const {
    return static_cast<uint32_t>((end + layout.part_bytes - 1) / layout.part_bytes);
  }
  // Some of the bytes are under no digest.
  bool cuts_parts() const {
    return begin % layout.part_bytes != 0 || (end % layout.part_bytes != 0 && end != layout.length);
  }
  bool verifiable() const { return check && table && !cuts_parts(); }
};

// Describes a get of all of a chunk, a run of its parts (count 0, or beyond the end = to the end),
// or a byte range. InvalidArgument: not inside the chunk. `digests` false: the chunk has none.
absl::Status SelectWhole(bool digests, GetChunk* chunk);
absl::Status SelectParts(uint32_t first, uint32_t count, bool digests, GetChunk* chunk);
absl::Status SelectRange(uint64_t offset, uint64_t bytes, bool digests, GetChunk* chunk);

// Takes memory for the digests of the parts that come, whatever a store says of the rest.
class GetPayload final : public transport::PayloadSink {
 public:
  enum class Verdict : uint8_t {
    kPending,     // not all of it has landed
    kVerified,    // every byte is under a digest that fits, and these under the root
    kUnverified,  // landed; some bytes have no digest to hold them to, or need not be held to it
    kBad,         // a digest, or the root, did not fit
  };

  // Told as things happen, on the thread that drives the call.
  class Listener {
   public:
    virtual ~Listener() = default;
    // By part only. Of the parts that the chunk was asked for, those before number `parts` are in
    // place: verified, or as far as they ever will be. Never after OnBad.
    virtual void OnParts(size_t chunk, uint32_t parts) = 0;
    virtual void OnBad(size_t chunk) = 0;
  };

  GetPayload() = default;
  // `listener` may be null; is borrowed.
  GetPayload(std::vector<GetChunk> chunks, GetOrder order, Listener* listener);

  uint64_t stream_bytes() const { return stream_bytes_; }
  Verdict verdict(size_t chunk) const { return verdicts_[chunk]; }
  const GetChunk& chunk(size_t i) const { return chunks_[i]; }

  void NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  absl::Status Landed(size_t bytes) override;
  absl::Status TakeFrom(const char* from, size_t bytes, size_t* taken) override;

 private:
  // A stretch of the stream that belongs to one chunk.
  struct Run {
    static constexpr uint32_t kTable = 0xFFFFFFFF;
    static constexpr uint32_t kAll = 0xFFFFFFFE;  // every byte
    uint32_t chunk;
    uint32_t part;  // or one of the above
  };
  struct Range {
    uint64_t begin, end;
    uint64_t bytes() const { return end - begin; }
  };
  struct Position {
    size_t run = 0;
    uint64_t done = 0;
  };
  // Where a chunk's memory is filled to. By chunk there is one, for the chunk under way.
  struct Place {
    uint32_t chunk = 0xFFFFFFFF;
    MemoryCursor cursor;
    // What NextBuffers has given out beyond; of value if `round` is the current one.
    MemoryCursor ahead;
    uint64_t round = 0;
  };

  // Of the table: positions in it. Of bytes: positions in the chunk.
  Range RangeOf(const Run& run) const;
  Place& PlaceOf(uint32_t chunk, Place* single);
  // Where the table's bytes from `done` on go, as far as they lie together. Digests that are of no
  // use pass through scratch memory, the next of which is at `scratch_at`; none left = length 0.
  iovec TableMemory(uint32_t chunk, uint64_t done, size_t scratch_at, bool* scratch);
  size_t TableLanded(const Run& run, size_t bytes);
  // `from` null: they are in place; else they are there, and are copied from it.
  size_t BytesLanded(const Run& run, size_t bytes, const char* from);
  void Digest(uint32_t chunk, uint64_t offset, const iovec& piece, const char* from);
  void Passed(const Run& run, size_t bytes);
  void EndRun(const Run& run);
  void CheckRoot(uint32_t chunk);
  void EndChunk(uint32_t chunk);
  void Condemn(uint32_t chunk);

  std::vector<GetChunk> chunks_;
  GetOrder order_ = GetOrder::kByChunk;
  Listener* listener_ = nullptr;
  std::vector<Verdict> verdicts_;
  std::vector<size_t> first_digest_;  // per chunk: in digests_
  std::vector<PartDigest> digests_;   // of the parts that come
  std::vector<Run> runs_;
  uint64_t stream_bytes_ = 0;

  Position landed_;
  std::vector<Place> places_;  // by part: of each chunk
  Place place_;                // by chunk
  Place ahead_place_;
  uint64_t round_ = 0;
  DigestStream stream_;                // of the part under way
  std::optional<DigestStream> table_;  // of the table under way, where it is not kept as a whole
  std::unique_ptr<char[]> scratch_;
  size_t scratch_bytes_ = 0;
  size_t scratch_landed_ = 0;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_GET_PAYLOAD_H_
