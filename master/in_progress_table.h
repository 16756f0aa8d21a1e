// Chunks that have been placed and not yet reported.
#ifndef CISTERN_MASTER_IN_PROGRESS_TABLE_H_
#define CISTERN_MASTER_IN_PROGRESS_TABLE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "master/types.h"

namespace cistern::master {

// Promise: while a chunk is being put, others hear so, the same operation hears the same store, and
// its bytes count as taken in that store. An entry ends when the chunk's record arrives or after a
// fixed time; never more than max_entries at once. No call takes longer than some thousand entries
// do, however many there are: the table grows in parts.
// Role: PlaceCall adds, the record appliers end, Tick expires. Thread-safety: none.
class InProgressTable {
 public:
  struct Options {
    absl::Duration lifetime = absl::Seconds(10);
    uint32_t max_entries = 1'000'000;
  };
  struct Placement {
    OperationId operation;
    StoreIndex store;
    uint32_t length = 0;
  };

  explicit InProgressTable(const Options& options);

  // Null when nobody is putting it. Good until the next change.
  const Placement* Find(const ChunkName& chunk, MonoTime now) const;
  // False when the table is full. Replaces an earlier placement of the chunk.
  bool Add(const ChunkName& chunk, const Placement& placement, MonoTime now);
  // The chunk was reported, or its placement is void. Harmless when it is not there.
  void End(const ChunkName& chunk);
  // Ends what has run out, at most `max`; true when there may be more.
  bool Expire(MonoTime now, uint32_t max);

  uint32_t size() const { return size_; }
  // Entries of the fullest part: what one call may have to move.
  size_t largest_part() const;
  // Bytes of extents placed in the store and not reported yet, and how many chunks that is.
  uint64_t placed_bytes(StoreIndex store) const;
  uint64_t placed_chunks(StoreIndex store) const;

 private:
  struct Slot {
    Placement placement;
    uint64_t serial = 0;
    MonoTime until;
  };
  struct Due {
    ChunkName chunk;
    uint64_t serial = 0;
    MonoTime until;
  };
  struct Placed {
    uint64_t bytes = 0;
    uint64_t chunks = 0;
  };

  // A table of millions would be moved as a whole when it grows, under the core's lock.
  using Part = absl::flat_hash_map<ChunkName, Slot>;
  Part& PartOf(const ChunkName& chunk) { return parts_[PartNumber(chunk)]; }
  const Part& PartOf(const ChunkName& chunk) const { return parts_[PartNumber(chunk)]; }
  size_t PartNumber(const ChunkName& chunk) const;
  bool Full() const;
  void Uncount(const Placement& placement);

  const Options options_;
  std::vector<Part> parts_;  // a power of two of them
  uint32_t size_ = 0;
  std::deque<Due> due_;  // in order of time; entries that ended early are skipped by their serial
  uint64_t next_serial_ = 1;
  std::vector<Placed> placed_;  // by store
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_IN_PROGRESS_TABLE_H_
