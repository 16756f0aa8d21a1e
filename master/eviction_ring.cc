#include "master/eviction_ring.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace cistern::master {

EvictionRing::Item EvictionRing::ItemAt(const Page& page, uint32_t i) {
  return {EntryIndex(page.entries[i]), page.versions[i],
          MonoTime{absl::Milliseconds(page.base_ms + page.group_ms[i / kGroupItems])}};
}

// A group's time is that of the item which is written first in it; in a compacted group that of
// the last one written (its items came within a few groups of each other).
void EvictionRing::Put(Page& page, uint32_t i, const Item& item) {
  page.entries[i] = item.entry.value;
  page.versions[i] = item.version_low;
  if (i % kGroupItems == 0 || i == page.begin) {
    const int64_t after = absl::ToInt64Milliseconds(item.arrived.since_origin) - page.base_ms;
    page.group_ms[i / kGroupItems] =
        static_cast<uint32_t>(std::clamp<int64_t>(after, 0, std::numeric_limits<uint32_t>::max()));
  }
}

void EvictionRing::PushYoung(EntryIndex entry, uint16_t version_low, MonoTime now) {
  if (pages_.empty() || pages_.back()->end == kPageItems) {
    pages_.push_back(std::make_unique<Page>());
    pages_.back()->base_ms = absl::ToInt64Milliseconds(now.since_origin);
  }
  Page& page = *pages_.back();
  Put(page, page.end, Item{entry, version_low, now});
  ++page.end;
  ++size_;
}

void EvictionRing::PushOld(const Item& item) {
  if (pages_.empty() || pages_.front()->begin == 0) {
    auto page = std::make_unique<Page>();
    page->begin = page->end = kPageItems;
    // A page that is filled from its end gets older items later: leave room below.
    page->base_ms = absl::ToInt64Milliseconds(item.arrived.since_origin);
    pages_.push_front(std::move(page));
    ++compact_at_;
  }
  Page& page = *pages_.front();
  --page.begin;
  Put(page, page.begin, item);
  ++size_;
}

EvictionRing::Item EvictionRing::Oldest() const {
  CISTERN_CHECK(size_ > 0);
  return ItemAt(*pages_.front(), pages_.front()->begin);
}

EvictionRing::Item EvictionRing::PopOldest() {
  const Item item = Oldest();
  Page& page = *pages_.front();
  ++page.begin;
  --size_;
  // Empty pages go, so that the front page always has an item (or there is no page).
  while (!pages_.empty() && pages_.front()->begin == pages_.front()->end) {
    pages_.pop_front();
    if (compact_at_ > 0) --compact_at_;
  }
  return item;
}

void EvictionRing::JoinWithOlder() {
  const size_t at = compact_at_;
  Page& page = *pages_[at];
  const uint32_t count = page.end - page.begin;
  const bool joins = at > 0 && pages_[at - 1]->end + count <= kPageItems;
  if (joins) {
    Page& older = *pages_[at - 1];
    for (uint32_t i = page.begin; i < page.end; ++i) {
      Put(older, older.end, ItemAt(page, i));
      ++older.end;
    }
  }
  if (joins || count == 0) {
    pages_.erase(pages_.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    ++compact_at_;
  }
}

}  // namespace cistern::master
