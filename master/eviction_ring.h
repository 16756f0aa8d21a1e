// The order in which one store's chunks arrived in one tier.
#ifndef CISTERN_MASTER_EVICTION_RING_H_
#define CISTERN_MASTER_EVICTION_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/clock.h"
#include "master/types.h"

namespace cistern::master {

// Promise: a queue of {entry, low 16 bits of the replica's version}, oldest first, at about 6.4
// bytes an item, with the time of arrival to within 16 items. Items of chunks that have gone
// meanwhile stay until they are popped or compacted away: whoever pops compares the version.
// Role: the record appliers push, the evictor pops. Thread-safety: none.
class EvictionRing {
 public:
  struct Item {
    EntryIndex entry;
    uint16_t version_low = 0;
    MonoTime arrived;
  };
  static constexpr uint32_t kPageItems = 640;

  bool empty() const { return size_ == 0; }
  // Stale items included.
  uint64_t size() const { return size_; }
  uint64_t memory_bytes() const { return pages_.size() * sizeof(Page); }

  // Precondition: `now` is not before earlier pushes' by more than rounding.
  void PushYoung(EntryIndex entry, uint16_t version_low, MonoTime now);
  // Puts an item back where it was popped from.
  void PushOld(const Item& item);
  // Precondition: not empty.
  Item Oldest() const;
  Item PopOldest();
  // Calls fn(entry) for the oldest, `n` of them or a few less: what is popped next.
  template <typename Fn>
  void ForOldest(uint32_t n, Fn fn) const {
    if (pages_.empty()) return;
    const Page& page = *pages_.front();
    const uint32_t end = std::min<uint32_t>(page.end, page.begin + n);
    for (uint32_t i = page.begin; i < end; ++i) fn(EntryIndex(page.entries[i]));
  }

  // Works through one page: keeps the items for which live(Item) holds and joins pages that have
  // become small. Call it now and then while most items are stale; each call goes on where the last
  // one stopped.
  // Calls fetch(entry) some items ahead of live.
  template <typename Live, typename Fetch>
  void CompactStep(Live live, Fetch fetch) {
    constexpr uint32_t kAhead = 16;
    if (pages_.empty()) return;
    if (compact_at_ >= pages_.size()) compact_at_ = 0;
    Page& page = *pages_[compact_at_];
    uint32_t kept = page.begin;
    for (uint32_t i = page.begin; i < page.end; ++i) {
      if (i + kAhead < page.end) fetch(EntryIndex(page.entries[i + kAhead]));
      const Item item = ItemAt(page, i);
      if (live(item)) Put(page, kept++, item);
    }
    size_ -= page.end - kept;
    page.end = static_cast<uint16_t>(kept);
    JoinWithOlder();
  }

 private:
  static constexpr uint32_t kGroupItems = 16;
  struct Page {
    int64_t base_ms = 0;  // time of the page
    uint16_t begin = 0;   // items [begin, end) are there
    uint16_t end = 0;
    uint32_t group_ms[kPageItems / kGroupItems] = {};  // time of each 16 items, after base_ms
    uint32_t entries[kPageItems];
    uint16_t versions[kPageItems];
  };
  static_assert(sizeof(Page) <= 4096);

  static Item ItemAt(const Page& page, uint32_t i);
  static void Put(Page& page, uint32_t i, const Item& item);
  void JoinWithOlder();

  std::deque<std::unique_ptr<Page>> pages_;  // front = oldest
  uint64_t size_ = 0;
  size_t compact_at_ = 0;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_EVICTION_RING_H_
