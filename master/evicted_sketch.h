// Remembers what was evicted lately, to explain misses.
#ifndef CISTERN_MASTER_EVICTED_SKETCH_H_
#define CISTERN_MASTER_EVICTED_SKETCH_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace cistern::master {

// Promise: of the chunks added most recently (about as many as `slots`) it knows most; of one never
// added it says yes once in 2 billion. A direct-mapped table of 32-bit tags: later ones overwrite
// earlier ones, so that it ages by itself. Role: statistics only. Thread-safety: none.
class EvictedSketch {
 public:
  // `slot_bits`: 2^slot_bits slots of 4 bytes.
  explicit EvictedSketch(int slot_bits = 20)
      : slot_bits_(slot_bits), tags_(size_t{1} << slot_bits) {}

  void Add(const KeyId& id, Shard shard) { tags_[SlotOf(id, shard)] = TagOf(id); }
  void Remove(const KeyId& id, Shard shard) {
    if (Contains(id, shard)) tags_[SlotOf(id, shard)] = 0;
  }
  // Asks from memory for what the others look at.
  void Fetch(const KeyId& id, Shard shard) const {
    __builtin_prefetch(&tags_[SlotOf(id, shard)], 1);
  }
  bool Contains(const KeyId& id, Shard shard) const {
    return tags_[SlotOf(id, shard)] == TagOf(id);
  }

 private:
  size_t SlotOf(const KeyId& id, Shard shard) const {
    return ((id.word(0) + shard.value) * 0x9E3779B97F4A7C15u) >> (64 - slot_bits_);
  }
  static uint32_t TagOf(const KeyId& id) { return static_cast<uint32_t>(id.word(1)) | 1; }

  const int slot_bits_;
  std::vector<uint32_t> tags_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_EVICTED_SKETCH_H_
