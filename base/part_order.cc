#include "base/part_order.h"

#include <algorithm>
#include <cstddef>

namespace cistern {

PartOrder::PartOrder(absl::Span<const PartInterval> chunks) {
  coming_.reserve(chunks.size());
  for (size_t i = chunks.size(); i-- > 0;) {
    if (chunks[i].first < chunks[i].end) coming_.push_back({static_cast<uint32_t>(i), chunks[i]});
  }
  // Mostly all begin at one part: then it is in order already.
  std::stable_sort(coming_.begin(), coming_.end(),
                   [](const Chunk& a, const Chunk& b) { return a.parts.first > b.parts.first; });
  BeginRound();
}

bool PartOrder::BeginRound() {
  at_ = 0;
  kept_ = 0;
  if (now_.empty()) {
    if (coming_.empty()) return false;
    part_ = coming_.back().parts.first;
  }
  const auto old = static_cast<std::ptrdiff_t>(now_.size());
  while (!coming_.empty() && coming_.back().parts.first == part_) {
    now_.push_back(coming_.back());
    coming_.pop_back();
  }
  std::inplace_merge(now_.begin(), now_.begin() + old, now_.end(),
                     [](const Chunk& a, const Chunk& b) { return a.index < b.index; });
  return true;
}

bool PartOrder::Next(Step* step) {
  if (at_ == now_.size()) {
    now_.resize(kept_);
    ++part_;
    if (!BeginRound()) return false;
  }
  const Chunk chunk = now_[at_++];
  *step = {chunk.index, part_};
  if (part_ + 1 < chunk.parts.end) now_[kept_++] = chunk;
  return true;
}

}  // namespace cistern
