// The store's mapping of memory that a client lent, where reading it can neither fail nor cost.
//
// Whoever maps a file of somebody else's lives with what becomes of it: a page beyond its end is
// SIGBUS, and reading a hole takes a page, which the reader's cgroup pays for. So only memory is
// mapped whose seals rule both out for good, and only pages that are there are read:
//
//   1. F_SEAL_SHRINK: it has no end that could move. A file of tmpfs: huge pages come from a pool
//      that can be empty, which is SIGBUS too.
//   2. F_SEAL_FUTURE_WRITE (or F_SEAL_WRITE): nobody can punch holes any more, the owner neither.
//      A page that is there stays, in memory or in swap.
//   3. mincore says which pages are there. It tells the truth only to the file's owner. What was
//      there once need not be asked for again.
//
// What does not meet these is read by pread (borrowed_memory.h).
#ifndef CISTERN_TRANSPORT_SHM_LENT_MAPPING_H_
#define CISTERN_TRANSPORT_SHM_LENT_MAPPING_H_

#include <cstdint>
#include <vector>

namespace cistern::transport {

// Whether `fd` is memory that may be mapped: 1 to 3 above, but for its length.
bool MayMapLent(int fd);

// A read-only mapping; unmaps when destroyed. Movable. Used by one thread at a time.
class LentMapping {
 public:
  // Precondition: MayMapLent(fd), and the file has `bytes`. False where the system has no more
  // mappings.
  static LentMapping Map(int fd, uint64_t bytes);

  LentMapping() = default;
  LentMapping(LentMapping&& other) noexcept { *this = std::move(other); }
  LentMapping& operator=(LentMapping&& other) noexcept;
  ~LentMapping();

  explicit operator bool() const { return data_ != nullptr; }
  uint64_t bytes() const { return bytes_; }
  // The bytes at [offset, offset + bytes), nullptr where a page of them is not there (now).
  // Precondition: inside.
  const char* Find(uint64_t offset, uint64_t bytes);

 private:
  // Whether all pages of a stretch are there.
  bool Ask(uint64_t begin, uint64_t end);
  const char* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<unsigned char> pages_;  // mincore's answer
  std::vector<bool> whole_;           // by kGranule bytes: asked, and all there for good
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_LENT_MAPPING_H_
