// One contiguous range of DRAM that a store exports: a file (on tmpfs, so that it outlives the
// process) or a memfd (which does not).
#ifndef CISTERN_STORE_SEGMENT_H_
#define CISTERN_STORE_SEGMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "store/segment_format.h"
#include "store/segment_memory.h"

namespace cistern::store {

enum class SegmentKind { kFile, kMemfd };

struct SegmentOptions {
  SegmentKind kind = SegmentKind::kFile;
  std::string path;  // of the file; for a memfd the name shown in /proc
  uint64_t bytes = 0;
  uint64_t expected_chunk_bytes = 64 << 10;
  PoolId pool_id;
  HugePages huge_pages = HugePages::kNever;
  StopAsked stop = {};  // allocating many gigabytes takes seconds
  // What a wire makes of the memory when it is there. The result, which may be null, goes before
  // the mapping does.
  std::function<std::shared_ptr<void>(const std::string& name, char* base, uint64_t bytes)> lend =
      {};
};

// A mapped segment whose superblock has been checked. Owns the descriptor, the lock on the file and
// the mapping. Immutable after Open, so its accessors are thread-safe; who may write which bytes is
// the business of ChunkStore.
class Segment {
 public:
  // Creates and formats the segment, or attaches one that is there already with its own layout
  // (`attached()`; the configured expected_chunk_bytes then has no say). Every page is backed by
  // memory when this returns, so that a full tmpfs is refused here and never kills the process
  // later. The folder of a file must exist.
  // FailedPrecondition: in use by another process, of another pool, of a newer format, of another
  // size than configured, damaged, no segment at all, or not in huge pages that are required.
  // ResourceExhausted: no memory for it. Cancelled: `stop` said so. A file that was not there
  // before is not there after an error either.
  static absl::StatusOr<std::unique_ptr<Segment>> Open(const SegmentOptions& options,
                                                       absl::Time now);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentId& id() const { return id_; }
  const SegmentLayout& layout() const { return layout_; }
  const std::string& path() const { return path_; }
  // The file's name within its folder; of a memfd its name.
  std::string name() const { return path_.substr(path_.rfind('/') + 1); }
  bool persistent() const { return kind_ == SegmentKind::kFile; }
  bool attached() const { return attached_; }
  int fd() const { return fd_; }  // for wires that register or hand out the memory
  HugePages huge_pages() const { return huge_pages_; }
  // Bytes that lay in huge pages when the segment had been opened; 0 where none were asked for.
  uint64_t huge_bytes() const { return huge_bytes_; }
  // Takes the file out of its folder: the memory goes when the last mapping and descriptor do.
  // Nothing for a memfd, or when another file has that name by now. Idempotent.
  absl::Status RemoveFile() const;

  char* base() const { return base_; }
  char* At(uint64_t offset) const { return base_ + offset; }
  absl::Span<NamespaceSlot> namespace_slots() const;
  absl::Span<ChunkHeader> headers() const;

 private:
  Segment() = default;
  absl::Status OpenFile(const SegmentOptions& options);
  absl::Status OpenMemfd(const SegmentOptions& options);
  absl::Status Fill(const SegmentOptions& options, absl::Time now);
  absl::Status MakeHuge(const SegmentOptions& options);
  absl::Status Format(const SegmentOptions& options, absl::Time now);
  absl::Status Attach(const SegmentOptions& options);

  SegmentKind kind_ = SegmentKind::kFile;
  std::string path_;
  int fd_ = -1;
  char* base_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  std::shared_ptr<void> lent_;  // what SegmentOptions::lend gave
  bool attached_ = false;
  HugePages huge_pages_ = HugePages::kNever;
  uint64_t huge_bytes_ = 0;
  bool fresh_ = false;  // the file was created, or was never formatted to its end
  SegmentId id_;
  SegmentLayout layout_;
};

// Checks a superblock against the file it came from: FailedPrecondition as Segment::Open says.
// `what` names the file in the message.
absl::StatusOr<SegmentLayout> CheckSuperblock(const Superblock& superblock, uint64_t file_bytes,
                                              const PoolId& pool_id, const std::string& what);
uint32_t SuperblockCrc(const Superblock& superblock);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_H_
