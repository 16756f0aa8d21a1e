#include "base/crc32c.h"

#include <algorithm>

#include "isa-l/crc.h"

namespace cistern {

uint32_t Crc32c(const void* data, size_t bytes) {
  // ISA-L leaves the initial value and the final inversion to the caller, counts bytes in an int
  // and forgets const.
  auto* next = static_cast<unsigned char*>(const_cast<void*>(data));
  uint32_t crc = 0xFFFFFFFF;
  while (bytes > 0) {
    const size_t n = std::min(bytes, size_t{1} << 30);
    crc = crc32_iscsi(next, static_cast<int>(n), crc);
    next += n;
    bytes -= n;
  }
  return ~crc;
}

}  // namespace cistern
