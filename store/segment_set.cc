#include "store/segment_set.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {

SegmentOptions OptionsFor(const SegmentPlace& place, const SegmentSpec& spec) {
  SegmentOptions options;
  options.kind = spec.kind;
  options.path = spec.kind == SegmentKind::kMemfd ? spec.name
                                                  : absl::StrCat(place.segment_dir, "/", spec.name);
  options.bytes = spec.bytes;
  options.expected_chunk_bytes = place.expected_chunk_bytes;
  options.pool_id = place.pool_id;
  options.huge_pages = spec.huge_pages;
  options.lend = place.lend;
  return options;
}

absl::Status DiscardSegmentFile(const SegmentPlace& place, const SegmentSpec& spec) {
  if (spec.kind == SegmentKind::kMemfd) return absl::OkStatus();
  const std::string path = OptionsFor(place, spec).path;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  absl::Status status;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    status = absl::FailedPreconditionError(absl::StrCat(path, ": in use by another process"));
  } else if (unlink(path.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  close(fd);
  return status;
}

absl::StatusOr<std::vector<std::unique_ptr<Segment>>> OpenSegments(
    const SegmentPlace& place, const std::vector<SegmentSpec>& configured, absl::Time now,
    const StopAsked& stop, SegmentManifest* manifest) {
  CISTERN_ASSIGN_OR_RETURN(const SegmentManifest found, SegmentManifest::Load(place.data_dir));
  CISTERN_ASSIGN_OR_RETURN(SegmentPlan plan, PlanSegments(configured, found));
  for (const std::string& remark : plan.remarks) CISTERN_LOG(Info, remark);
  for (const SegmentSpec& spec : plan.discard) {
    CISTERN_RETURN_IF_ERROR(DiscardSegmentFile(place, spec));
  }
  // After the files: a kill in between finds nothing to remove and goes on here.
  if (plan.after.ToText() != found.ToText()) {
    CISTERN_RETURN_IF_ERROR(plan.after.Save(place.data_dir));
  }
  std::vector<std::unique_ptr<Segment>> segments;
  for (const SegmentSpec& spec : plan.open) {
    SegmentOptions options = OptionsFor(place, spec);
    options.stop = stop;
    CISTERN_LOG(Info, "opening segment ", options.path, ", ", FormatSize(options.bytes));
    CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Segment::Open(options, now));
    if (spec.huge_pages != HugePages::kNever) {
      CISTERN_LOG(Info, "segment ", options.path, ": ", FormatSize(segment->huge_bytes()), " of ",
                  FormatSize(options.bytes), " in huge pages");
    }
    segments.push_back(std::move(segment));
  }
  *manifest = std::move(plan.after);
  return segments;
}

}  // namespace cistern::store
