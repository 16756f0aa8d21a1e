// A running store's segment file, seen from outside, to flip bits in it: docs/formats/segment.md
// read by hand.
#ifndef CISTERN_TESTS_INTEGRATION_CLIENT_SEGMENT_FILE_H_
#define CISTERN_TESTS_INTEGRATION_CLIENT_SEGMENT_FILE_H_

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/test_util.h"

namespace cistern {

// Used by one thread. A chunk must be at rest while it is looked for.
class SegmentFile {
 public:
  explicit SegmentFile(const std::string& path) : fd_(open(path.c_str(), O_RDWR)) {
    EXPECT_GE(fd_, 0) << path;
  }
  ~SegmentFile() { close(fd_); }
  SegmentFile(const SegmentFile&) = delete;

  // Where a chunk's header lies in the file; nullopt: there is none.
  std::optional<uint64_t> HeaderOf(const KeyId& id) const {
    const uint64_t table = U64(72);
    const uint32_t count = U32(80);
    std::string headers(size_t{count} * 128, '\0');
    EXPECT_EQ(pread(fd_, headers.data(), headers.size(), static_cast<off_t>(table)),
              static_cast<ssize_t>(headers.size()));
    for (uint32_t i = 0; i < count; ++i) {
      const char* header = headers.data() + size_t{i} * 128;
      const int state = header[3];
      if (state >= 2 && std::memcmp(header + 8, id.bytes.data(), 16) == 0) {
        return table + uint64_t{i} * 128;
      }
    }
    return std::nullopt;
  }
  uint64_t PayloadOf(uint64_t header) const { return U64(header + 48); }
  uint64_t PartTableOf(uint64_t header) const {
    return RoundUp(PayloadOf(header) + U64(header + 56), 8);
  }
  void FlipBit(uint64_t offset, int bit) {
    uint8_t byte = 0;
    ASSERT_EQ(pread(fd_, &byte, 1, static_cast<off_t>(offset)), 1);
    byte = static_cast<uint8_t>(byte ^ 1 << bit);
    ASSERT_EQ(pwrite(fd_, &byte, 1, static_cast<off_t>(offset)), 1);
  }

 private:
  uint64_t U64(uint64_t at) const {
    uint64_t value = 0;
    EXPECT_EQ(pread(fd_, &value, 8, static_cast<off_t>(at)), 8);
    return value;
  }
  uint32_t U32(uint64_t at) const {
    uint32_t value = 0;
    EXPECT_EQ(pread(fd_, &value, 4, static_cast<off_t>(at)), 4);
    return value;
  }
  const int fd_;
};

}  // namespace cistern

#endif  // CISTERN_TESTS_INTEGRATION_CLIENT_SEGMENT_FILE_H_
