// Opens a starting store's segments: what configuration and manifest say.
#ifndef CISTERN_STORE_SEGMENT_SET_H_
#define CISTERN_STORE_SEGMENT_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "store/segment.h"
#include "store/segment_manifest.h"

namespace cistern::store {

// Where a store's segments lie, and what they have in common.
struct SegmentPlace {
  std::string data_dir;     // the manifest
  std::string segment_dir;  // the files
  PoolId pool_id;
  uint64_t expected_chunk_bytes = 64 << 10;
  decltype(SegmentOptions::lend) lend = {};  // of each
};

SegmentOptions OptionsFor(const SegmentPlace& place, const SegmentSpec& spec);

// Ends what was cut short, then opens the rest; both folders exist. Errors as Segment::Open's, or
// the manifest's; `manifest` is then unchanged.
absl::StatusOr<std::vector<std::unique_ptr<Segment>>> OpenSegments(
    const SegmentPlace& place, const std::vector<SegmentSpec>& configured, absl::Time now,
    const StopAsked& stop, SegmentManifest* manifest);

// Removes the file of a segment that nobody uses. OK when there is none. FailedPrecondition:
// another process has it open.
absl::Status DiscardSegmentFile(const SegmentPlace& place, const SegmentSpec& spec);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_SET_H_
