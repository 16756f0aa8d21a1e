// Which segments a store has: those of its configuration, changed by what was mounted and unmounted
// while it ran. The changes are in the file `segments` of the data folder, as text that an
// administrator may read and, while the store is stopped, edit: docs/formats/segments-file.md.
#ifndef CISTERN_STORE_SEGMENT_MANIFEST_H_
#define CISTERN_STORE_SEGMENT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "store/segment.h"

namespace cistern::store {

// A segment to be had. The name is that of its file within segment_dir, unique in the store.
struct SegmentSpec {
  std::string name;
  SegmentKind kind = SegmentKind::kFile;
  uint64_t bytes = 0;
  HugePages huge_pages = HugePages::kNever;
  friend bool operator==(const SegmentSpec&, const SegmentSpec&) = default;
};

inline constexpr size_t kMaxSegmentNameBytes = 64;
// InvalidArgument unless the name is a plain file name of printable characters.
absl::Status CheckSegmentName(std::string_view name);
// The segments that the configuration names, defaults filled in. InvalidArgument: a bad name, or
// two of the same.
absl::StatusOr<std::vector<SegmentSpec>> ConfiguredSegments(const config::StoreConfig& config);

// A value; not thread-safe.
class SegmentManifest {
 public:
  enum class State {
    kMounting,  // its file may be half-made: nobody was told that it is there
    kMounted,
    kUnmounting,  // its file may be gone already
    kUnmounted,   // of the configuration, and not to be opened
  };
  struct Entry {
    State state = State::kMounted;
    SegmentSpec spec;
  };
  static constexpr size_t kMaxEntries = 1024;
  static constexpr char kFileName[] = "segments";

  // FailedPrecondition, with the line: the file is damaged or of a newer format.
  static absl::StatusOr<SegmentManifest> Load(const std::string& data_dir);
  static absl::StatusOr<SegmentManifest> Parse(std::string_view text);
  std::string ToText() const;
  // Durable when it returns OK. Writes nothing where there has never been anything to say.
  absl::Status Save(const std::string& data_dir) const;

  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* Find(std::string_view name) const;
  // Replaces the entry of that name.
  void Set(State state, const SegmentSpec& spec);
  void Erase(std::string_view name);

 private:
  std::vector<Entry> entries_;
};

// What a starting store does with configuration and manifest.
struct SegmentPlan {
  std::vector<SegmentSpec> open;
  // Mounts that never ended and unmounts that are to be ended: their files go, then `after` counts.
  std::vector<SegmentSpec> discard;
  SegmentManifest after;
  std::vector<std::string> remarks;  // for the log
};
// FailedPrecondition: no segment would be left.
absl::StatusOr<SegmentPlan> PlanSegments(const std::vector<SegmentSpec>& configured,
                                         const SegmentManifest& manifest);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_MANIFEST_H_
