#include "store/expiry_index.h"

#include <algorithm>
#include <iterator>

namespace cistern::store {
namespace {

// Below this many stale items a sweep is not worth its time.
constexpr size_t kMinStaleToSweep = 1024;

}  // namespace

void ExpiryIndex::Add(uint32_t unix_s, Item item) {
  buckets_[unix_s].push_back(item);
  ++size_;
}

void ExpiryIndex::NoteStale(const IsLive& is_live) {
  ++stale_;
  if (stale_ < kMinStaleToSweep || stale_ * 2 < size_) return;
  size_ = 0;
  for (auto it = buckets_.begin(); it != buckets_.end();) {
    std::vector<Item>& items = it->second;
    items.erase(std::remove_if(items.begin(), items.end(),
                               [&](const Item& item) { return !is_live(item); }),
                items.end());
    size_ += items.size();
    it = items.empty() ? buckets_.erase(it) : std::next(it);
  }
  stale_ = 0;
}

size_t ExpiryIndex::TakeDue(uint32_t unix_s, size_t max, const IsLive& is_live,
                            std::vector<Item>* out) {
  size_t removed = 0;
  while (removed < max && !buckets_.empty() && buckets_.begin()->first <= unix_s) {
    std::vector<Item>& items = buckets_.begin()->second;
    for (; removed < max && !items.empty(); ++removed) {
      if (is_live(items.back())) {
        out->push_back(items.back());
      } else {
        --stale_;
      }
      items.pop_back();
    }
    if (items.empty()) buckets_.erase(buckets_.begin());
  }
  size_ -= removed;
  return removed;
}

}  // namespace cistern::store
