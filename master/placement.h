// Where new chunks go: the policy, as a function of what is known about the stores.
#ifndef CISTERN_MASTER_PLACEMENT_H_
#define CISTERN_MASTER_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace cistern::master {

// A store that can take chunks now.
struct PlacementCandidate {
  StoreIndex store;
  uint64_t capacity_bytes = 0;
  // Bytes to its low watermark, with what is placed and not yet reported counted as used and what
  // it was told to evict as gone. 0 = at the watermark or above.
  uint64_t free_bytes = 0;
  absl::Duration oldest_age;  // of its oldest entry
  bool same_host = false;     // as the client
};

struct PlacementRequest {
  uint64_t chain_chunks = 0;    // the whole batch
  uint64_t present_chunks = 0;  // of it
  // Holds the deepest chunk of the leading run that is there; none = no such chunk.
  StoreIndex ancestor{StoreIndex::kNone};
  uint64_t absent_bytes = 0;
};

// A run of absent chunks, in chain order: up to `bytes` of them (the last run takes the rest).
struct PlacementRun {
  StoreIndex store;
  uint64_t bytes = 0;
  bool given_up = false;  // the caller's: nothing more of it can go
};

// The policy, in this order:
//   1. The ancestor's store, if at least half of the chain is present and its oldest entry is at
//      least half as old as the oldest of any store (else chains would pile up in one store and
//      push each other out of it while the others keep what nobody reads).
//   2. While any store is below its low watermark: the one with the most free bytes.
//   3. Else the store whose oldest entry is oldest: among full stores free bytes say nothing, the
//      age of what would go does.
// In 2 and 3 the client's own host wins within 10 % of the best. A batch is cut into contiguous
// runs over at most 2 stores (4 when it has more than 1 GiB), and only as far as a run would be
// more than a sixteenth of the store.
class PlacementPolicy {
 public:
  static constexpr uint64_t kWideBytes = uint64_t{1} << 30;
  static constexpr uint64_t kRunShare = 16;  // a run may be a store's capacity / this

  // Empty when there are no candidates. No thread-safety needed: no state.
  static std::vector<PlacementRun> Choose(const PlacementRequest& request,
                                          absl::Span<const PlacementCandidate> candidates);

 private:
  static bool FollowsAncestor(const PlacementRequest& request,
                              absl::Span<const PlacementCandidate> candidates);
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_PLACEMENT_H_
