// What the kernel says about a mapping of this process.
#ifndef CISTERN_BASE_MAPPING_H_
#define CISTERN_BASE_MAPPING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cistern {

struct MappingInfo {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t resident_bytes = 0;     // small and huge pages mapped
  uint64_t huge_bytes = 0;         // of them by huge pages: of the page cache, anonymous or hugetlb
  std::vector<std::string> flags;  // VmFlags: "dd" = not in core dumps, "hg" = huge pages advised
  bool HasFlag(const std::string& flag) const;
};

// The mapping that `address` lies in, from /proc/self/smaps. The kernel walks its page tables: fine
// at start and in tests, not on a data path. NotFound: nothing is mapped there.
absl::StatusOr<MappingInfo> ReadMapping(const void* address);

// Bytes that this host could give without swapping (MemAvailable); 0 when that is not known.
uint64_t AvailableMemoryBytes();

}  // namespace cistern

#endif  // CISTERN_BASE_MAPPING_H_
