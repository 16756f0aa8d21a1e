// The payload stream of a put, received: chunk after chunk its bytes, then its part digests.
#ifndef CISTERN_STORE_PUT_STREAM_H_
#define CISTERN_STORE_PUT_STREAM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/digest.h"
#include "store/chunk_store.h"
#include "transport/payload.h"

namespace cistern::store {

// One chunk of the stream. `slot` null: its bytes are not wanted and are read past.
struct PutStreamItem {
  PartLayout layout;
  PutSlot* slot = nullptr;
  bool good = false;  // out: all has landed and the digests match
  bool bad = false;   // out: all has landed and they do not
};

// Receives straight into the slots and hashes what has just landed, while it is in the cache.
// Borrows the items' slots. Used by one thread at a time.
class PutStream final : public transport::PayloadSink {
 public:
  // `digests`: part digests follow each chunk's bytes and are compared.
  PutStream(std::vector<PutStreamItem> items, bool digests);

  uint64_t total_bytes() const { return total_bytes_; }
  absl::Span<const PutStreamItem> items() const { return items_; }

  void NextBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out) override;
  absl::Status Landed(size_t bytes) override;
  absl::Status TakeFrom(const char* from, size_t bytes, size_t* taken) override;

 private:
  uint64_t ItemBytes(const PutStreamItem& item) const;
  // The contiguous memory at `offset` of an item's stream.
  iovec MemoryAt(PutStreamItem& item, uint64_t offset);
  void FinishItem();

  std::vector<PutStreamItem> items_;
  const bool digests_;
  uint64_t total_bytes_ = 0;
  size_t current_ = 0;
  uint64_t offset_ = 0;  // within the current item
  std::optional<ChunkDigester> digester_;
  std::vector<char> scratch_;  // where unwanted bytes go
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_PUT_STREAM_H_
