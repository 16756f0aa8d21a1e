// The payload stream of a get, sent: chunk after chunk the part digests asked for, then the bytes.
#ifndef CISTERN_STORE_GET_STREAM_H_
#define CISTERN_STORE_GET_STREAM_H_

#include <cstdint>
#include <vector>

#include "store/chunk_store.h"
#include "store/peer_ledger.h"
#include "transport/payload.h"

namespace cistern::store {

// One chunk's share of the stream, inside memory that `ref` holds in place.
struct GetPiece {
  const char* digests = nullptr;
  uint64_t digest_bytes = 0;
  const char* bytes = nullptr;
  uint64_t byte_count = 0;
};

// Owns the references, and what they count for the peer: the chunks stay in place until the wire
// has let go of the stream.
class GetStream final : public transport::PayloadSource {
 public:
  // Pieces point into `refs` and what they hold.
  GetStream(std::vector<ChunkRef> refs, std::vector<GetPiece> pieces, PeerLedger::Hold hold);

  uint64_t remaining() const override { return remaining_; }
  void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  size_t memory_bytes() const override {
    return refs_.capacity() * sizeof(ChunkRef) + pieces_.capacity() * sizeof(GetPiece);
  }

 private:
  const std::vector<ChunkRef> refs_;
  const std::vector<GetPiece> pieces_;
  PeerLedger::Hold hold_;
  uint64_t remaining_ = 0;
  size_t current_ = 0;
  uint64_t offset_ = 0;  // within the current piece: digests, then bytes
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_GET_STREAM_H_
