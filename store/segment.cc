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
#include "base/status.h"

namespace cistern::store {
namespace {

absl::Status Refuse(const std::string& what, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", why));
}

// Backs every page with memory, so that no later store can meet a full file system.
absl::Status Allocate(int fd, uint64_t bytes, const std::string& what) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error == 0) return absl::OkStatus();
  if (error == ENOSPC || error == EFBIG || error == ENOMEM) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": no room for a segment of ", bytes,
                     " bytes: make the segment smaller or the file system larger"));
  }
  return ErrnoStatus(error, absl::StrCat("allocate ", what));
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
  CISTERN_RETURN_IF_ERROR(options.kind == SegmentKind::kFile ? segment->OpenFile(options)
                                                             : segment->OpenMemfd(options));
  CISTERN_RETURN_IF_ERROR(segment->Map(options.bytes));
  Superblock* superblock = reinterpret_cast<Superblock*>(segment->base_);
  if (superblock->magic == 0) {
    CISTERN_RETURN_IF_ERROR(segment->Format(options, now));
  } else {
    CISTERN_RETURN_IF_ERROR(segment->Attach(options));
  }
  return segment;
}

Segment::~Segment() {
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
  fresh_ = st.st_size == 0;
  absl::Status allocated = Allocate(fd_, options.bytes, path_);
  if (!allocated.ok() && fresh_) unlink(path_.c_str());  // gives back what there was
  return allocated;
}

absl::Status Segment::OpenMemfd(const SegmentOptions& options) {
  const std::string name = path_.empty() ? "cistern-segment" : path_;
  fd_ = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) return ErrnoStatus(errno, "memfd_create");
  fresh_ = true;
  CISTERN_RETURN_IF_ERROR(Allocate(fd_, options.bytes, absl::StrCat("memfd ", name)));
  // Not F_SEAL_FUTURE_WRITE: it would forbid the store to map the memory again.
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return ErrnoStatus(errno, "seal memfd");
  }
  return absl::OkStatus();
}

absl::Status Segment::Map(uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map segment ", path_));
  base_ = static_cast<char*>(p);
  mapped_bytes_ = bytes;
  // A core file of the store would otherwise hold the whole cache. Only advice: failing is no harm.
  (void)madvise(base_, bytes, MADV_DONTDUMP);
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
