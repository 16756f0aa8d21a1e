#include "master/in_progress_table.h"

namespace cistern::master {

const InProgressTable::Placement* InProgressTable::Find(const ChunkName& chunk,
                                                        MonoTime now) const {
  auto it = chunks_.find(chunk);
  if (it == chunks_.end() || it->second.until <= now) return nullptr;
  return &it->second.placement;
}

bool InProgressTable::Add(const ChunkName& chunk, const Placement& placement, MonoTime now) {
  // What ended early leaves its mark in due_ until its time: bound that too.
  if (chunks_.size() >= options_.max_entries || due_.size() >= 4ull * options_.max_entries) {
    End(chunk);
    if (chunks_.size() >= options_.max_entries || due_.size() >= 4ull * options_.max_entries) {
      return false;
    }
  }
  const MonoTime until = now + options_.lifetime;
  const auto [it, fresh] = chunks_.try_emplace(chunk);
  if (!fresh) Uncount(it->second.placement);
  it->second = Slot{placement, next_serial_, until};
  due_.push_back(Due{chunk, next_serial_, until});
  ++next_serial_;
  if (placement.store.value >= placed_.size()) placed_.resize(placement.store.value + 1u);
  placed_[placement.store.value].bytes += ExtentBytesFor(placement.length);
  ++placed_[placement.store.value].chunks;
  return true;
}

void InProgressTable::Uncount(const Placement& placement) {
  placed_[placement.store.value].bytes -= ExtentBytesFor(placement.length);
  --placed_[placement.store.value].chunks;
}

void InProgressTable::End(const ChunkName& chunk) {
  auto it = chunks_.find(chunk);
  if (it == chunks_.end()) return;
  Uncount(it->second.placement);
  chunks_.erase(it);
}

bool InProgressTable::Expire(MonoTime now, uint32_t max) {
  while (!due_.empty()) {
    const Due& due = due_.front();
    auto it = chunks_.find(due.chunk);
    const bool ended = it == chunks_.end() || it->second.serial != due.serial;
    if (!ended && due.until > now) return false;
    if (max-- == 0) return true;
    if (!ended) End(due.chunk);
    due_.pop_front();
  }
  return false;
}

uint64_t InProgressTable::placed_bytes(StoreIndex store) const {
  return store.value < placed_.size() ? placed_[store.value].bytes : 0;
}

uint64_t InProgressTable::placed_chunks(StoreIndex store) const {
  return store.value < placed_.size() ? placed_[store.value].chunks : 0;
}

}  // namespace cistern::master
