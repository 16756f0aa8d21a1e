// The order of a payload stream that goes part by part: part i of every chunk before part i + 1 of
// any. Both ends of a get walk it, so it is told here once.
#ifndef CISTERN_BASE_PART_ORDER_H_
#define CISTERN_BASE_PART_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cistern {

// The parts [first, end) of one chunk, by their numbers in the chunk; never empty.
struct PartInterval {
  uint32_t first = 0;
  uint32_t end = 0;
};

// Walks the parts of a batch: by ascending part number, and of one number by ascending chunk.
// Takes time in proportion to the parts, whatever the intervals are, and memory for the chunks.
// Not thread-safe.
class PartOrder {
 public:
  struct Step {
    uint32_t chunk = 0;  // position in the batch
    uint32_t part = 0;
  };

  explicit PartOrder(absl::Span<const PartInterval> chunks);

  // The next part; false at the end.
  bool Next(Step* step);

 private:
  struct Chunk {
    uint32_t index;
    PartInterval parts;
  };
  // Takes in the chunks that begin at part_. False: nothing is left.
  bool BeginRound();

  std::vector<Chunk> coming_;  // by descending (first part, chunk): the next one is at the back
  std::vector<Chunk> now_;     // those with part part_, by chunk
  size_t at_ = 0;              // in now_
  size_t kept_ = 0;            // of those passed, how many have part part_ + 1
  uint32_t part_ = 0;
};

}  // namespace cistern

#endif  // CISTERN_BASE_PART_ORDER_H_
