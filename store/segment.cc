#include "store/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern::store {
namespace {

absl::Status Refuse(const std::string& what, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", why));
}

}  // namespace

uint32_t SuperblockCrc(const Superblock& superblock) {
  return Crc32c(&superblock, offsetof(Superblock, crc32c));
}

absl::StatusOr<SegmentLayout> CheckSuperblock(const Superblock& superblock, uint64_t file_bytes,
                                              const PoolId& pool_id, const std::string& what) {
  const Superblock& s = superblock;
  if (s.magic != kSegmentMagic) {
    return Refuse(what, "not a segment of Cistern; remove it or choose another name");
  }
  if (s.format_version > kSegmentFormatVersion) {
    return Refuse(what, absl::StrCat("segment format ", s.format_version,
                                     ", this program knows formats up to ", kSegmentFormatVersion,
                                     "; run a newer program or remove the file"));
  }
  if (s.format_version == 0 || s.crc32c != SuperblockCrc(s)) {
    return Refuse(what, "the superblock is damaged (CRC); remove the file to start empty");
  }
  const PoolId found = PoolId::FromBytes(s.pool_id);
  if (found != pool_id) {
    return Refuse(what, absl::StrCat("belongs to pool ", found.ToHex(), ", this is pool ",
                                     pool_id.ToHex(), "; choose another file"));
  }
  const uint64_t headers_end = s.header_offset + uint64_t{s.header_count} * kHeaderBytes;
  const uint64_t slots_end = s.namespace_offset + uint64_t{s.namespace_slots} * kNamespaceSlotBytes;
  const bool sane =
      s.segment_bytes == file_bytes && s.segment_bytes <= kMaxSegmentBytes &&
      s.namespace_slot_bytes == kNamespaceSlotBytes && s.header_bytes == kHeaderBytes &&
      s.header_count > 0 && s.namespace_offset >= kSuperblockBytes && s.namespace_offset % 8 == 0 &&
      s.namespace_offset < s.segment_bytes && slots_end <= s.header_offset &&
      s.header_offset % Extent::kAlignment == 0 && s.header_offset < s.segment_bytes &&
      headers_end <= s.payload_offset && s.payload_offset % Extent::kAlignment == 0 &&
      s.payload_offset < s.segment_bytes && s.segment_bytes % Extent::kAlignment == 0;
  if (!sane) return Refuse(what, "the superblock's sizes do not fit the file; remove the file");
  SegmentLayout layout;
  layout.segment_bytes = s.segment_bytes;
  layout.namespace_offset = s.namespace_offset;
  layout.namespace_slots = s.namespace_slots;
  layout.header_offset = s.header_offset;
  layout.header_count = s.header_count;
  layout.payload_offset = s.payload_offset;
  return layout;
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Open(const SegmentOptions& options,
                                                       absl::Time now) {
  // Refused before any memory is spent.
  CISTERN_RETURN_IF_ERROR(
      SegmentLayout::Make(options.bytes, options.expected_chunk_bytes).status());
  std::unique_ptr<Segment> segment(new Segment());
  segment->kind_ = options.kind;
  segment->path_ = options.path;
  segment->huge_pages_ = options.huge_pages;
  CISTERN_RETURN_IF_ERROR(options.kind == SegmentKind::kFile ? segment->OpenFile(options)
                                                             : segment->OpenMemfd(options));
  if (absl::Status filled = segment->Fill(options, now); !filled.ok()) {
    if (segment->fresh_) segment->RemoveFile().IgnoreError();  // gives back what there was
    return filled;
  }
  return segment;
}

absl::Status Segment::Fill(const SegmentOptions& options, absl::Time now) {
  CISTERN_RETURN_IF_ERROR(BackWithMemory(fd_, options.bytes, path_, options.stop));
  CISTERN_ASSIGN_OR_RETURN(base_, MapSegment(fd_, options.bytes, path_));
  mapped_bytes_ = options.bytes;
  const bool formatted = reinterpret_cast<const Superblock*>(base_)->magic != 0;
  CISTERN_RETURN_IF_ERROR(formatted ? Attach(options) : Format(options, now));
  CISTERN_RETURN_IF_ERROR(MakeHuge(options));
  // Last: pages that a device knows cannot be moved into huge ones.
  if (options.lend) lent_ = options.lend(name(), base_, mapped_bytes_);
  return absl::OkStatus();
}

absl::Status Segment::MakeHuge(const SegmentOptions& options) {
  if (options.huge_pages == HugePages::kNever) return absl::OkStatus();
  CISTERN_RETURN_IF_ERROR(CollapseIntoHugePages(fd_, base_, mapped_bytes_, options.stop));
  huge_bytes_ = HugeBytes(base_);
  const uint64_t whole = mapped_bytes_ / kHugePageBytes * kHugePageBytes;
  if (huge_bytes_ >= whole) return absl::OkStatus();
  const std::string how =
      HowToGetHugePages(huge_bytes_, mapped_bytes_, kind_ == SegmentKind::kMemfd, path_);
  if (options.huge_pages == HugePages::kRequire) {
    return absl::FailedPreconditionError(
        absl::StrCat("huge_pages = \"require\", but ", how, "; or set huge_pages = \"try\""));
  }
  CISTERN_LOG(Warning, "huge pages were asked for, but ", how);
  return absl::OkStatus();
}

Segment::~Segment() {
  lent_.reset();
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
  if (fd_ >= 0) close(fd_);
}

absl::Status Segment::OpenFile(const SegmentOptions& options) {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) return ErrnoStatus(errno, absl::StrCat("open segment ", path_));
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Refuse(path_, "in use by another process");
    return ErrnoStatus(errno, absl::StrCat("lock segment ", path_));
  }
  struct stat st;
  if (fstat(fd_, &st) != 0) return ErrnoStatus(errno, absl::StrCat("stat segment ", path_));
  if (!S_ISREG(st.st_mode)) return Refuse(path_, "not a regular file");
  if (st.st_uid != geteuid()) return Refuse(path_, "belongs to another user");
  if (st.st_size != 0 && static_cast<uint64_t>(st.st_size) != options.bytes) {
    return Refuse(path_, absl::StrCat("has ", st.st_size, " bytes where the configuration says ",
                                      options.bytes, "; set the size or remove the file"));
  }
  if (fchmod(fd_, 0600) != 0) return ErrnoStatus(errno, absl::StrCat("chmod segment ", path_));
  if (st.st_size != 0) return absl::OkStatus();
  fresh_ = true;
  absl::Status sized = CheckRoomFor(fd_, options.bytes, path_);
  if (sized.ok() && ftruncate(fd_, static_cast<off_t>(options.bytes)) != 0) {
    sized = errno == EFBIG ? absl::ResourceExhaustedError(
                                 absl::StrCat(path_, ": no room for a segment of ", options.bytes,
                                              " bytes: the limit on a file's size is lower"))
                           : ErrnoStatus(errno, absl::StrCat("size segment ", path_));
  }
  if (!sized.ok()) RemoveFile().IgnoreError();
  return sized;
}

absl::Status Segment::OpenMemfd(const SegmentOptions& options) {
  const std::string name = path_.empty() ? "cistern-segment" : path_;
  fresh_ = true;
  if (options.huge_pages != HugePages::kNever) fd_ = HugetlbMemfd(name, options.bytes);
  if (fd_ < 0) {
    fd_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0) return ErrnoStatus(errno, "memfd_create");
    CISTERN_RETURN_IF_ERROR(CheckRoomFor(fd_, options.bytes, absl::StrCat("memfd ", name)));
    if (ftruncate(fd_, static_cast<off_t>(options.bytes)) != 0) {
      return ErrnoStatus(errno, absl::StrCat("size memfd ", name));
    }
  }
  // Not F_SEAL_FUTURE_WRITE: it would forbid the store to map the memory again.
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoStatus(errno, "seal memfd");
  }
  return absl::OkStatus();
}

absl::Status Segment::RemoveFile() const {
  if (kind_ != SegmentKind::kFile) return absl::OkStatus();
  struct stat ours;
  struct stat named;
  if (fstat(fd_, &ours) != 0) return ErrnoStatus(errno, absl::StrCat("stat segment ", path_));
  if (lstat(path_.c_str(), &named) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("stat ", path_));
  }
  if (ours.st_dev != named.st_dev || ours.st_ino != named.st_ino) return absl::OkStatus();
  if (unlink(path_.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("remove ", path_));
  return absl::OkStatus();
}

absl::Status Segment::Format(const SegmentOptions& options, absl::Time now) {
  CISTERN_ASSIGN_OR_RETURN(layout_,
                           SegmentLayout::Make(options.bytes, options.expected_chunk_bytes));
  if (!fresh_) {  // the space may have held something before
    std::memset(base_ + layout_.namespace_offset, 0,
                layout_.payload_offset - layout_.namespace_offset);
  }
  id_ = RandomId<SegmentId>();
  Superblock image{};
  image.format_version = kSegmentFormatVersion;
  image.superblock_bytes = kSuperblockBytes;
  std::memcpy(image.pool_id, options.pool_id.bytes.data(), sizeof(image.pool_id));
  std::memcpy(image.segment_id, id_.bytes.data(), sizeof(image.segment_id));
  image.segment_bytes = layout_.segment_bytes;
  image.namespace_offset = layout_.namespace_offset;
  image.namespace_slots = layout_.namespace_slots;
  image.namespace_slot_bytes = kNamespaceSlotBytes;
  image.header_offset = layout_.header_offset;
  image.header_count = layout_.header_count;
  image.header_bytes = kHeaderBytes;
  image.payload_offset = layout_.payload_offset;
  image.created_unix_ms = static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMillis(now)));
  image.magic = kSegmentMagic;
  image.crc32c = SuperblockCrc(image);
  // The magic goes last, so that a format cut short is seen as such.
  Superblock* superblock = reinterpret_cast<Superblock*>(base_);
  std::memcpy(base_ + sizeof(image.magic), reinterpret_cast<char*>(&image) + sizeof(image.magic),
              sizeof(image) - sizeof(image.magic));
  OrderStores();
  std::atomic_ref<uint64_t>(superblock->magic).store(kSegmentMagic, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Segment::Attach(const SegmentOptions& options) {
  const Superblock& superblock = *reinterpret_cast<const Superblock*>(base_);
  CISTERN_ASSIGN_OR_RETURN(layout_,
                           CheckSuperblock(superblock, mapped_bytes_, options.pool_id, path_));
  id_ = SegmentId::FromBytes(superblock.segment_id);
  attached_ = true;
  return absl::OkStatus();
}

absl::Span<NamespaceSlot> Segment::namespace_slots() const {
  return absl::MakeSpan(reinterpret_cast<NamespaceSlot*>(base_ + layout_.namespace_offset),
                        layout_.namespace_slots);
}

absl::Span<ChunkHeader> Segment::headers() const {
  return absl::MakeSpan(reinterpret_cast<ChunkHeader*>(base_ + layout_.header_offset),
                        layout_.header_count);
}

}  // namespace cistern::store
