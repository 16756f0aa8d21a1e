// Which chunks expire when, so that TTLs free bytes promptly without a scan.
#ifndef CISTERN_STORE_EXPIRY_INDEX_H_
#define CISTERN_STORE_EXPIRY_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/ids.h"

namespace cistern::store {

// Buckets by second. Entries that were removed earlier stay behind as stale items, told by their
// version, until their second comes or until they are half of all items: so a chunk without expiry
// costs nothing and one with it 16 bytes, at most 32.
//
// Not thread-safe.
class ExpiryIndex {
 public:
  struct Item {
    uint32_t entry = 0;
    Version version;
  };
  // Tells whether the entry still holds that version.
  using IsLive = std::function<bool(const Item&)>;

  void Add(uint32_t unix_s, Item item);
  // An item added before is no longer live.
  void NoteStale(const IsLive& is_live);

  // Removes up to `max` items due at or before `unix_s`, appends the live ones, and returns how
  // many it removed.
  size_t TakeDue(uint32_t unix_s, size_t max, const IsLive& is_live, std::vector<Item>* out);
  // The second of the earliest item; 0 = none.
  uint32_t next_due() const { return buckets_.empty() ? 0 : buckets_.begin()->first; }
  size_t size() const { return size_; }

 private:
  absl::btree_map<uint32_t, std::vector<Item>> buckets_;
  size_t size_ = 0;
  size_t stale_ = 0;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_EXPIRY_INDEX_H_
