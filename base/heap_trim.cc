#include "base/heap_trim.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace cistern {
namespace {

HeapTrimmer::Options Complete(HeapTrimmer::Options options) {
  if (options.resident_bytes == nullptr) options.resident_bytes = OwnResidentBytes;
  if (options.trim == nullptr) options.trim = [] { malloc_trim(0); };
  return options;
}

}  // namespace

uint64_t OwnResidentBytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128] = {};
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  // "size resident ...", in pages.
  const char* const resident = n > 0 ? std::strchr(text, ' ') : nullptr;
  if (resident == nullptr) return 0;
  return std::strtoull(resident, nullptr, 10) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

HeapTrimmer::HeapTrimmer(Options options) : options_(Complete(std::move(options))) {
  base_ = last_ = options_.resident_bytes();
}

bool HeapTrimmer::Look(MonoTime now) {
  if (now < next_) return false;
  next_ = now + options_.every;
  const uint64_t bytes = options_.resident_bytes();
  const bool grows = bytes > std::exchange(last_, bytes);
  base_ = std::min(base_, bytes);
  if (grows || bytes < base_ + options_.step_bytes) return false;
  options_.trim();
  base_ = last_ = options_.resident_bytes();
  return true;
}

}  // namespace cistern
