// The headers of one segment: which are free, and the order of stores that makes a commit atomic
// against a kill.
//
//   reserve  store the word {writing, g}
//   commit   fill bytes 8..123, store the word {committed, g} with release
//   free     store the word {free, g+1}: the CRC, which covers the generation, fails from here on.
//            The extent is given back only when the last reader is gone.
//
// A kill between any two stores leaves a header that is free, writing (dropped by the scan) or
// committed with every byte in place.
#ifndef CISTERN_STORE_HEADER_TABLE_H_
#define CISTERN_STORE_HEADER_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "proto/types.pb.h"
#include "store/segment_format.h"

namespace cistern::store {

// What a committed header says.
struct HeaderFields {
  ChunkName name;
  NamespaceId namespace_id;
  Version version;
  uint64_t length = 0;
  Extent extent;  // the payload starts at extent.offset
  uint64_t root_digest = 0;
  uint64_t created_unix_ms = 0;
  uint64_t expiry_unix_ms = 0;
  wire::DigestKind digest_kind = wire::DIGEST_NONE;
  uint8_t flags = 0;
  uint32_t tenant_tag = 0;
  uint32_t part_bytes = 0;  // 0 = one part
  uint64_t single_part_digest = 0;
  uint64_t mutation = 0;  // of a mutable namespace
  uint32_t last_access_unix_s = 0;
};

// CRC32C of bytes 4..119, with the generation as stored in the word.
uint32_t HeaderCrc(const ChunkHeader& header);

// Not thread-safe: ChunkStore calls it under its mutex. Borrows the header memory.
class HeaderTable {
 public:
  explicit HeaderTable(absl::Span<ChunkHeader> headers);

  uint32_t count() const { return static_cast<uint32_t>(headers_.size()); }
  uint32_t used() const { return used_; }
  bool full() const { return used_ == count(); }

  // Reserves a header ({writing, g}); nullopt when all are used.
  std::optional<HeaderIndex> Reserve();
  // Precondition for the rest: `index` is reserved (Commit) or committed.
  void Commit(HeaderIndex index, const HeaderFields& fields);
  // {free, g+1}. The header stays used until Recycle.
  void Free(HeaderIndex index);
  // Makes a freed header reservable again.
  void Recycle(HeaderIndex index);
  void MarkVerified(HeaderIndex index);
  bool verified(HeaderIndex index) const;
  // Notes an access, at most once a minute (so that reads dirty few cache lines).
  void Touch(HeaderIndex index, uint32_t unix_s);
  Generation generation(HeaderIndex index) const;
  HeaderFields Read(HeaderIndex index) const;
  // Of a committed header: its CRC fits, so that every field is as Commit wrote it. It lies in the
  // segment, where bits may flip.
  bool Sound(HeaderIndex index) const;

  struct Found {
    HeaderIndex index;
    HeaderFields fields;
    bool verified = false;  // said the header; from the scan on it is to be checked again
  };
  struct ScanCounts {
    uint64_t free = 0;
    uint64_t writing = 0;  // dropped: a put that never ended
    uint64_t damaged = 0;  // dropped: CRC, magic or a field out of range
    uint64_t committed = 0;
  };
  // Reads every header, as found on attaching a segment whose payload is [payload.offset,
  // payload.end()): gives the committed ones, frees those dropped, and rebuilds the free list.
  // The caller then drops, by Free and Recycle, what it cannot keep.
  ScanCounts Scan(const Extent& payload, std::vector<Found>* found);

 private:
  uint64_t LoadWord(uint32_t index) const;
  void StoreWord(uint32_t index, uint64_t word);

  absl::Span<ChunkHeader> headers_;
  uint32_t used_ = 0;
  // Free headers: those given back, and all from fresh_ on. So an untouched table stays unwritten.
  std::vector<uint32_t> recycled_;
  uint32_t fresh_ = 0;
};

// Chooses what to keep of headers found by scans: the higher version wins where extents of one
// segment overlap or where two headers name one chunk.
struct ScannedHeader {
  uint32_t segment = 0;
  HeaderTable::Found found;
};
struct ResolvedScan {
  std::vector<ScannedHeader> kept;  // by ascending version
  std::vector<ScannedHeader> dropped;
  uint64_t overlapping = 0;
  uint64_t duplicate = 0;
};
ResolvedScan ResolveScan(std::vector<ScannedHeader> scanned);

}  // namespace cistern::store

#endif  // CISTERN_STORE_HEADER_TABLE_H_
