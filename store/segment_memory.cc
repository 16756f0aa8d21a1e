#include "store/segment_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/mapping.h"
#include "base/status.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace cistern::store {
namespace {

// Between two of these a stop is noticed: some 50 ms of zeroing.
constexpr uint64_t kStepBytes = uint64_t{256} << 20;
constexpr int kCollapseTries = 4;

// Memory, not a disk.
bool InMemory(const struct statfs& fs) {
  return fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

int AllocateRange(int fd, uint64_t from, uint64_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(from), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

absl::Status NoRoom(const std::string& what, uint64_t bytes, const std::string& there_is) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": no room for a segment of ", bytes, " bytes: ", there_is,
                   "make the segment smaller or the file system larger"));
}

}  // namespace

const char* HugePagesName(HugePages huge_pages) {
  switch (huge_pages) {
    case HugePages::kNever:
      return "never";
    case HugePages::kTry:
      return "try";
    case HugePages::kRequire:
      return "require";
  }
  return "?";
}

absl::StatusOr<HugePages> ParseHugePages(const std::string& name) {
  for (const HugePages h : {HugePages::kNever, HugePages::kTry, HugePages::kRequire}) {
    if (name == HugePagesName(h)) return h;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("huge_pages is never, try or require, not '", name, "'"));
}

absl::Status CheckRoomFor(int fd, uint64_t bytes, const std::string& what) {
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0)
    return ErrnoStatus(errno, absl::StrCat("stat the file system of ", what));
  if (fs.f_type == HUGETLBFS_MAGIC && bytes % static_cast<uint64_t>(fs.f_bsize) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, " lies on hugetlbfs: its size must be a multiple of ", fs.f_bsize, " bytes"));
  }
  // A tmpfs without a size limit of its own tells 0 blocks.
  const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
  if (fs.f_blocks != 0 && free < bytes) {
    return NoRoom(what, bytes, absl::StrCat("its file system has ", free, " free; "));
  }
  // hugetlb pages were set aside already. The others are the host's: taking more than there is
  // would end in the out-of-memory killer, not in an error.
  const uint64_t available = AvailableMemoryBytes();
  if (InMemory(fs) && fs.f_type != HUGETLBFS_MAGIC && available != 0 && available < bytes) {
    return NoRoom(what, bytes, absl::StrCat("the host has ", available, " bytes of memory left; "));
  }
  return absl::OkStatus();
}

absl::Status BackWithMemory(int fd, uint64_t bytes, const std::string& what,
                            const StopAsked& stop) {
  for (uint64_t at = 0; at < bytes; at += kStepBytes) {
    if (stop && stop())
      return absl::CancelledError(absl::StrCat(what, ": stopped while allocating"));
    const int error = AllocateRange(fd, at, std::min(kStepBytes, bytes - at));
    if (error == ENOSPC || error == EFBIG || error == ENOMEM) return NoRoom(what, bytes, "");
    if (error != 0) return ErrnoStatus(error, absl::StrCat("allocate ", what));
  }
  return absl::OkStatus();
}

absl::StatusOr<char*> MapSegment(int fd, uint64_t bytes, const std::string& what) {
  // An address range with a whole huge page to spare, of which the aligned part is used.
  const uint64_t reserved = bytes + kHugePageBytes;
  void* range =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map segment ", what));
  char* const begin = static_cast<char*>(range);
  const uint64_t skip = RoundUp(reinterpret_cast<uint64_t>(begin), kHugePageBytes) -
                        reinterpret_cast<uint64_t>(begin);
  char* const base = begin + skip;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(range, reserved);
    return ErrnoStatus(error, absl::StrCat("map segment ", what));
  }
  if (skip != 0) munmap(begin, skip);
  munmap(base + bytes, reserved - skip - bytes);
  // A core file of the store would otherwise hold the whole cache. Only advice: failing is no harm.
  (void)madvise(base, bytes, MADV_DONTDUMP);
  return base;
}

absl::Status CollapseIntoHugePages(int fd, char* base, uint64_t bytes, const StopAsked& stop) {
  struct statfs fs;
  if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) {
    (void)madvise(base, bytes, MADV_POPULATE_WRITE);  // they are huge: mapping them is all
    return absl::OkStatus();
  }
  const uint64_t whole = bytes / kHugePageBytes * kHugePageBytes;
  if (whole == 0) return absl::OkStatus();
  // For khugepaged, which goes on in the background where the mount or the sysctl lets it.
  (void)madvise(base, whole, MADV_HUGEPAGE);
  for (uint64_t at = 0; at < whole; at += kStepBytes) {
    if (stop && stop()) return absl::CancelledError("stopped while making huge pages");
    // ENOMEM: some of the step could not; what could is done. EAGAIN: nor could what somebody had
    // hold of just then (the kernel's own lists do), which is often free a moment later.
    int failed = 0;
    for (int tries = 0; tries < kCollapseTries; ++tries) {
      failed = madvise(base + at, std::min(kStepBytes, whole - at), MADV_COLLAPSE);
      if (failed == 0 || errno != EAGAIN) break;
    }
    if (failed != 0 && errno == EINVAL) break;  // an older kernel, or a disk's file system
  }
  return absl::OkStatus();
}

uint64_t HugeBytes(const char* base) {
  const absl::StatusOr<MappingInfo> mapping = ReadMapping(base);
  return mapping.ok() ? mapping->huge_bytes : 0;
}

int HugetlbMemfd(const std::string& name, uint64_t bytes) {
  if (bytes % kHugePageBytes != 0) return -1;
  const int fd =
      memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 && AllocateRange(fd, 0, bytes) == 0) return fd;
  close(fd);
  return -1;
}

std::string HowToGetHugePages(uint64_t got_bytes, uint64_t bytes, bool memfd,
                              const std::string& path) {
  std::string text =
      absl::StrCat("segment ", path, ": ", got_bytes, " of ", bytes, " bytes lie in huge pages. ");
  if (memfd) {
    absl::StrAppend(&text, "Set pages aside (sysctl vm.nr_hugepages=",
                    (bytes + kHugePageBytes - 1) / kHugePageBytes,
                    ", and a size that is a multiple of 2MiB), or allow them for shared memory "
                    "(echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled)");
  } else {
    absl::StrAppend(&text,
                    "segment_dir must be a tmpfs that gives them: mount -o "
                    "remount,huge=advise (or huge=always) its mount point, and not deny in "
                    "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  }
  absl::StrAppend(&text, "; memory in pieces is joined by sysctl vm.compact_memory=1");
  return text;
}

}  // namespace cistern::store
