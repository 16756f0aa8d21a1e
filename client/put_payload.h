// What a put sends: for each chunk its bytes, then its part digests, made while it is sent.
#ifndef CISTERN_CLIENT_PUT_PAYLOAD_H_
#define CISTERN_CLIENT_PUT_PAYLOAD_H_

#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "client/memory_ref.h"
#include "transport/payload.h"

namespace cistern {

struct PutChunk {
  MemoryRef memory;
  PartLayout layout;
};

// Gives at most 256 KiB at a time where it digests: the wire then sends what was just read, from
// the cache. The caller's memory must stay unchanged until the call has ended: what changes under
// our hands is caught by the store as a wrong digest.
class PutPayload final : public transport::PayloadSource {
 public:
  static constexpr size_t kPieceBytes = 256 << 10;

  PutPayload(std::vector<PutChunk> chunks, bool digest);

  // The bytes that a put of these chunks sends.
  static uint64_t StreamBytes(const PutChunk& chunk, bool digest) {
    return chunk.layout.length + (digest ? sizeof(PartDigest) * chunk.layout.count : 0);
  }

  uint64_t remaining() const override { return remaining_; }
  void NextPieces(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  bool checked_by_digests() const override { return digest_; }

 private:
  // Feeds the digest of the part under way.
  void Digest(const iovec& piece);
  void BeginChunk();

  std::vector<PutChunk> chunks_;
  const bool digest_;
  uint64_t remaining_ = 0;

  size_t chunk_ = 0;
  uint64_t sent_ = 0;     // of the chunk's stream: bytes, then digests
  MemoryCursor cursor_;   // in its bytes
  uint32_t part_ = 0;     // being digested
  uint64_t in_part_ = 0;  // bytes of it fed
  DigestStream stream_;
  std::vector<PartDigest> digests_;  // of all chunks: sized at the start, sent from where they are
  size_t first_digest_ = 0;          // of the chunk under way
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PUT_PAYLOAD_H_
