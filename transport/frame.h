// The 32-byte frame header of the data plane (stores and the master's data port, every wire).
//
//   off size field
//     0    4 magic 0x4D545343 ("CSTM" little-endian)
//     4    1 major version (1)
//     5    1 frame type
//     6    2 flags
//     8    8 request id, chosen by the client, unique on the connection while in use
//    16    4 meta bytes
//    20    4 CRC-32C of the meta
//    24    8 payload bytes
//
// then the meta (protobuf), then the payload (raw).
#ifndef CISTERN_TRANSPORT_FRAME_H_
#define CISTERN_TRANSPORT_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace cistern::transport {

inline constexpr uint32_t kFrameMagic = 0x4D545343;
inline constexpr uint8_t kProtocolMajor = 1;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr uint32_t kMaxMetaBytesTcp = 1 << 20;
// A put whose chunks' bytes and digests sum to at most this goes in the request's own frame: 1 MiB
// of chunks, and their digests.
inline constexpr uint64_t kInlinePayloadBytes = (1 << 20) + (4 << 10);
// Payload of one Data frame: bounds how long a cancel waits for a frame to end.
inline constexpr uint64_t kMaxDataFrameBytes = 4 << 20;

enum class FrameType : uint8_t {
  kHello = 1,
  kHelloAck = 2,
  kAuth = 3,
  kAuthOk = 4,
  kError = 5,       // ErrorReply; final
  kCancel = 6,      // wire::Cancel; handled by the transport
  kCancelDone = 7,  // answers kCancel under the cancelled request's id; final for it
  kData = 8,        // payload of an open request or answer
  kPing = 9,
  kPong = 10,
  // store
  kBindNamespace = 16,
  kNamespaceBound = 17,
  kPut = 18,
  kPutReady = 19,
  kPutDone = 20,
  kGet = 21,
  kGetHead = 22,
  kGetDone = 23,
  kReportBad = 24,
  kReportBadReply = 25,
  kListKeys = 26,
  kListKeysReply = 27,
  // master
  kOpenNamespace = 32,
  kOpenNamespaceReply = 33,
  kMasterBindNamespace = 34,  // answered by kOpenNamespaceReply
  kGetMaps = 35,
  kGetMapsReply = 36,
  kLookup = 37,
  kLookupReply = 38,
  kPlace = 39,
  kPlaceReply = 40,
  kExists = 41,
  kExistsReply = 42,
  kRemove = 43,
  kRemoveReply = 44,
  kRelease = 45,
  kReleaseReply = 46,
};

// Frame flags.
inline constexpr uint16_t kFlagFinal = 1;  // the last frame of an answer

struct FrameHeader {
  uint8_t major = kProtocolMajor;
  FrameType type{};
  uint16_t flags = 0;
  uint64_t request_id = 0;
  uint32_t meta_bytes = 0;
  uint32_t meta_crc = 0;
  uint64_t payload_bytes = 0;
};

void EncodeFrameHeader(const FrameHeader& header, uint8_t out[kFrameHeaderBytes]);
// InvalidArgument: bad magic or major, meta beyond `max_meta_bytes`, payload beyond
// `max_payload_bytes`. Unknown types and flags pass: the caller decides.
absl::StatusOr<FrameHeader> DecodeFrameHeader(const uint8_t in[kFrameHeaderBytes],
                                              uint32_t max_meta_bytes, uint64_t max_payload_bytes);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_FRAME_H_
