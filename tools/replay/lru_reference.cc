#include "tools/replay/lru_reference.h"

#include <list>

#include "absl/container/flat_hash_map.h"

namespace cistern::replay {
namespace {

class Lru {
 public:
  explicit Lru(uint64_t capacity) : capacity_(capacity) {}

  bool Contains(uint64_t block) const { return where_.contains(block); }
  // Makes a block that is there the youngest.
  void Touch(uint64_t block) {
    const auto it = where_.find(block);
    if (it != where_.end()) order_.splice(order_.end(), order_, it->second);
  }
  // The number of blocks that had to go.
  uint64_t Insert(uint64_t block) {
    if (capacity_ == 0) return 0;
    if (Contains(block)) {
      Touch(block);
      return 0;
    }
    uint64_t evicted = 0;
    if (where_.size() == capacity_) {
      where_.erase(order_.front());
      order_.pop_front();
      evicted = 1;
    }
    where_[block] = order_.insert(order_.end(), block);
    return evicted;
  }

 private:
  const uint64_t capacity_;
  std::list<uint64_t> order_;  // oldest first
  absl::flat_hash_map<uint64_t, std::list<uint64_t>::iterator> where_;
};

}  // namespace

LruResult ReplayExactLru(const Workload& workload, uint64_t capacity_chunks) {
  Lru lru(capacity_chunks);
  LruResult result;
  for (const Request& request : workload) {
    size_t run = 0;
    bool unbroken = true;
    for (uint64_t block : request.blocks) {
      const bool hit = lru.Contains(block);
      result.chunk_hits += hit;
      unbroken = unbroken && hit;
      run += unbroken;
    }
    result.chunks_looked_up += request.blocks.size();
    result.prefix_hits += run;
    result.prefix_hit_tokens += request.TokensOfFirst(run);
    for (uint64_t block : request.blocks) lru.Touch(block);
    for (uint64_t block : request.blocks) result.evictions += lru.Insert(block);
  }
  return result;
}

}  // namespace cistern::replay
