// The door of base/fault.h into the real clock. Not in clock.h, which everything includes.
#ifndef CISTERN_BASE_WALL_OFFSET_H_
#define CISTERN_BASE_WALL_OFFSET_H_

#include <atomic>

#include "absl/time/time.h"

namespace cistern::internal {

// What is added to each reading of the real wall clock; nullptr: nothing.
extern std::atomic<absl::Duration (*)()> g_wall_offset;

}  // namespace cistern::internal

#endif  // CISTERN_BASE_WALL_OFFSET_H_
