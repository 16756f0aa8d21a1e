// CRC-32C (Castagnoli, reflected, initial value and final xor all ones; RFC 3720 appendix B.4 has
// test vectors).
#ifndef CISTERN_BASE_CRC32C_H_
#define CISTERN_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace cistern {

uint32_t Crc32c(const void* data, size_t bytes);

}  // namespace cistern

#endif  // CISTERN_BASE_CRC32C_H_
