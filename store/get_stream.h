// The payload stream of a get, sent.
//
//   chunk_major: chunk after chunk its part table, if asked for, then the bytes
//   part_major:  the part tables of all chunks, then the bytes in the order of base/part_order.h
#ifndef CISTERN_STORE_GET_STREAM_H_
#define CISTERN_STORE_GET_STREAM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/part_order.h"
#include "store/chunk_store.h"
#include "store/peer_ledger.h"
#include "transport/payload.h"

namespace cistern::store {

// One chunk's share of the stream, inside memory that `ref` holds in place: its part table, and the
// bytes [begin, end) of the chunk.
struct GetPiece {
  const char* table = nullptr;
  uint64_t table_bytes = 0;
  const char* payload = nullptr;  // of the whole chunk
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t part_bytes = 0;

  uint64_t stream_bytes() const { return table_bytes + (end - begin); }
};

// Owns the references, and what they count for the peer: the chunks stay in place until the wire
// has let go of the stream.
class GetStream final : public transport::PayloadSource {
 public:
  // Pieces point into `refs` and what they hold.
  GetStream(std::vector<ChunkRef> refs, std::vector<GetPiece> pieces, bool part_major,
            PeerLedger::Hold hold);

  uint64_t remaining() const override { return remaining_; }
  void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  size_t memory_bytes() const override {
    return refs_.capacity() * sizeof(ChunkRef) + pieces_.capacity() * sizeof(GetPiece);
  }

 private:
  // Memory that is sent as it lies.
  struct Stretch {
    const char* data = nullptr;
    uint64_t bytes = 0;
  };
  // The next one; maybe empty.
  Stretch Next();

  const std::vector<ChunkRef> refs_;
  const std::vector<GetPiece> pieces_;
  PeerLedger::Hold hold_;
  uint64_t remaining_ = 0;
  size_t next_ = 0;                 // stretches of tables, or of tables and bytes in turn
  std::optional<PartOrder> order_;  // part_major
  Stretch current_;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_GET_STREAM_H_
