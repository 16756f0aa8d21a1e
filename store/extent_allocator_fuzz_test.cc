// Any sequence of allocations, frees and rebuilds keeps the sums right and extents apart.
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "store/extent_allocator.h"

namespace cistern::store {
namespace {

void RunOperations(const uint8_t* data, size_t size) {
  constexpr uint64_t kBytes = 1024 * Extent::kAlignment;
  ExtentAllocator allocator(Extent::kAlignment, kBytes);
  std::map<uint64_t, Extent> held;  // by offset
  uint64_t held_bytes = 0;
  for (size_t i = 0; i + 3 <= size; i += 3) {
    const uint16_t argument = static_cast<uint16_t>(data[i + 1] | data[i + 2] << 8);
    switch (data[i] % 4) {
      case 0:
      case 1: {
        const uint64_t bytes = uint64_t{argument} * (data[i] % 2 == 0 ? 16 : 256) + 1;
        const uint64_t largest = allocator.largest_free_bytes();
        const auto extent = allocator.Allocate(bytes);
        CISTERN_CHECK(extent.has_value() == (bytes <= largest));
        if (!extent.has_value()) break;
        CISTERN_CHECK(extent->bytes == RoundUp(bytes, Extent::kAlignment));
        const auto next = held.lower_bound(extent->offset);
        CISTERN_CHECK(next == held.end() || extent->end() <= next->first);
        CISTERN_CHECK(next == held.begin() || std::prev(next)->second.end() <= extent->offset);
        held.emplace(extent->offset, *extent);
        held_bytes += extent->bytes;
        break;
      }
      case 2: {
        if (held.empty()) break;
        auto it = held.lower_bound(uint64_t{argument} * Extent::kAlignment);
        if (it == held.end()) it = held.begin();
        allocator.Free(it->second);
        held_bytes -= it->second.bytes;
        held.erase(it);
        break;
      }
      case 3: {
        std::vector<Extent> used;
        for (const auto& [offset, extent] : held) used.push_back(extent);
        // A stranger: refused when it collides or is malformed, else taken and given back.
        const Extent extra{uint64_t{argument} * 512, uint64_t{data[i]} * 2048};
        used.push_back(extra);
        if (allocator.Rebuild(used).ok()) allocator.Free(extra);
        break;
      }
    }
    CISTERN_CHECK(allocator.free_bytes() == kBytes - held_bytes);
    CISTERN_CHECK(allocator.largest_free_bytes() <= allocator.free_bytes());
  }
  for (const auto& [offset, extent] : held) allocator.Free(extent);
  CISTERN_CHECK(allocator.free_extent_count() == 1 && allocator.free_bytes() == kBytes);
}

TEST(ExtentAllocatorFuzzTest, RandomOperations) {
  std::mt19937 random(20'261);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> data(random() % 1500);
    for (uint8_t& b : data) b = static_cast<uint8_t>(random());
    RunOperations(data.data(), data.size());
  }
}

}  // namespace
}  // namespace cistern::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cistern::store::RunOperations(data, size);
  return 0;
}
