#include "master/in_progress_table.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"

namespace cistern::master {
namespace {

constexpr uint32_t kPartEntries = 1024;
constexpr uint32_t kMaxParts = 1 << 16;

}  // namespace

InProgressTable::InProgressTable(const Options& options)
    : options_(options),
      parts_(std::bit_ceil(std::clamp(options.max_entries / kPartEntries, 1u, kMaxParts))) {}

// By other bits of the hash than a part itself looks at first.
size_t InProgressTable::PartNumber(const ChunkName& chunk) const {
  return (absl::Hash<ChunkName>()(chunk) >> 40) & (parts_.size() - 1);
}

size_t InProgressTable::largest_part() const {
  size_t largest = 0;
  for (const Part& part : parts_) largest = std::max(largest, part.size());
  return largest;
}

const InProgressTable::Placement* InProgressTable::Find(const ChunkName& chunk,
                                                        MonoTime now) const {
  const Part& part = PartOf(chunk);
  auto it = part.find(chunk);
  if (it == part.end() || it->second.until <= now) return nullptr;
  return &it->second.placement;
}

// What ended early leaves its mark in due_ until its time: that is bounded too.
bool InProgressTable::Full() const {
  return size_ >= options_.max_entries || due_.size() >= 4ull * options_.max_entries;
}

bool InProgressTable::Add(const ChunkName& chunk, const Placement& placement, MonoTime now) {
  if (Full()) {
    End(chunk);
    if (Full()) return false;
  }
  const MonoTime until = now + options_.lifetime;
  const auto [it, fresh] = PartOf(chunk).try_emplace(chunk);
  if (fresh) {
    ++size_;
  } else {
    Uncount(it->second.placement);
  }
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
  Part& part = PartOf(chunk);
  auto it = part.find(chunk);
  if (it == part.end()) return;
  Uncount(it->second.placement);
  part.erase(it);
  --size_;
}

bool InProgressTable::Expire(MonoTime now, uint32_t max) {
  while (!due_.empty()) {
    const Due& due = due_.front();
    const Part& part = PartOf(due.chunk);
    auto it = part.find(due.chunk);
    const bool ended = it == part.end() || it->second.serial != due.serial;
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
