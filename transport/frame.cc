#include "transport/frame.h"

#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cistern::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written in place");

template <typename T>
void Put(uint8_t* out, size_t offset, T value) {
  std::memcpy(out + offset, &value, sizeof(T));
}

template <typename T>
T Get(const uint8_t* in, size_t offset) {
  T value;
  std::memcpy(&value, in + offset, sizeof(T));
  return value;
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]) {
  Put<uint32_t>(out, 0, kFrameMagic);
  Put<uint8_t>(out, 4, header.major);
  Put<uint8_t>(out, 5, static_cast<uint8_t>(header.type));
  Put<uint16_t>(out, 6, header.flags);
  Put<uint64_t>(out, 8, header.request_id);
  Put<uint32_t>(out, 16, header.meta_bytes);
  Put<uint32_t>(out, 20, header.meta_crc);
  Put<uint64_t>(out, 24, header.payload_bytes);
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(const uint8_t in[kFrameHeaderBytes],
                                              uint32_t max_meta_bytes, uint64_t max_payload_bytes) {
  if (const auto magic = Get<uint32_t>(in, 0); magic != kFrameMagic) {
    return absl::InvalidArgumentError(absl::StrFormat("frame: bad magic %08x", magic));
  }
  FrameHeader header;
  header.major = Get<uint8_t>(in, 4);
  if (header.major != kProtocolMajor) {
    return absl::InvalidArgumentError(absl::StrCat("frame: protocol version ", header.major,
                                                   ", this side speaks ", kProtocolMajor));
  }
  header.type = static_cast<FrameType>(Get<uint8_t>(in, 5));
  header.flags = Get<uint16_t>(in, 6);
  header.request_id = Get<uint64_t>(in, 8);
  header.meta_bytes = Get<uint32_t>(in, 16);
  header.meta_crc = Get<uint32_t>(in, 20);
  header.payload_bytes = Get<uint64_t>(in, 24);
  if (header.meta_bytes > max_meta_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: meta of ", header.meta_bytes,
                                                   " bytes, at most ", max_meta_bytes, " allowed"));
  }
  if (header.payload_bytes > max_payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", header.payload_bytes,
                                                   " bytes, at most ", max_payload_bytes,
                                                   " allowed"));
  }
  return header;
}

}  // namespace cistern::transport
