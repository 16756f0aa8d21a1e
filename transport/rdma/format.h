// What travels on a queue pair. The tables are in docs/formats/rdma.md. Little-endian.
//
//   1. Connecting: private data each way (Greeting) in the connection manager's messages.
//   2. Then messages by SEND: a header, bytes of the frames' stream, and notes. Notes are acted
//   upon
//      when they come, whatever waits in the stream.
//   3. In the stream, where payload would follow its frame in line, records announce it: raw (it
//      follows), or offered. Offers are answered by notes, in order:
//      - store to client: the client names places (kTarget) or wants nothing (kTaken); the store
//        WRITEs there and says so behind it (kLanded);
//      - client to store: the offer says where the bytes are; the store READs them and then says
//        that it needs them no more (kTaken), as it does of bytes that it does not want.
#ifndef CISTERN_TRANSPORT_RDMA_FORMAT_H_
#define CISTERN_TRANSPORT_RDMA_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "transport/piece_carrier.h"

namespace cistern::transport::rdma {

// --- private data ---

inline constexpr uint32_t kGreetingMagic = 0x47525343;  // "CSRG"
inline constexpr uint8_t kWireVersion = 1;
inline constexpr size_t kGreetingBytes = 28;  // rdma_cm carries 56 at least

struct Greeting {
  uint8_t version = kWireVersion;
  uint8_t nonce[16] = {};  // the caller's; the answer repeats it
  uint16_t reads = 0;      // RDMA READs that the sender serves at once
  // Longest packet in bytes; 0 = as the path has it. The answer's holds for both: of two ends that
  // differ each would refuse the other's packets.
  uint16_t mtu = 0;
};
void EncodeGreeting(const Greeting& greeting, uint8_t out[kGreetingBytes]);
// InvalidArgument: that is no greeting, or of another version.
absl::StatusOr<Greeting> DecodeGreeting(const void* data, size_t bytes);

// --- messages ---

// Size of a posted receive.
inline constexpr uint32_t kMessageBytes = 4096;
inline constexpr size_t kMessageHeaderBytes = 16;
// Messages that may be on their way to a peer or wait there: such as carry bytes of the stream, and
// such as carry none. The second kind is taken at once, so that notes never wait for the stream.
inline constexpr uint32_t kStreamCredits = 16;
inline constexpr uint32_t kNoteCredits = 8;
inline constexpr uint32_t kReceives = kStreamCredits + kNoteCredits;

inline constexpr uint16_t kMessageMagic = 0x4D52;  // "RM"

struct MessageHeader {
  uint16_t notes = 0;
  uint16_t stream_credits = 0;  // given back with this message
  uint16_t note_credits = 0;
  uint32_t stream_bytes = 0;
};
void EncodeMessageHeader(const MessageHeader& header, uint8_t out[kMessageHeaderBytes]);
// InvalidArgument unless header, notes and stream bytes are exactly `bytes`.
absl::StatusOr<MessageHeader> DecodeMessageHeader(const uint8_t* data, size_t bytes);

// --- notes ---

enum class NoteKind : uint8_t {
  kTarget = 1,  // client: write the next `bytes` that you offered at `address`
  kTaken = 2,   // either: the next `bytes` that you offered are not needed (any more)
  kLanded = 3,  // store: the next `bytes` that you named places for are there
};
struct Note {
  NoteKind kind{};
  uint32_t bytes = 0;
  uint32_t key = 0;
  uint64_t address = 0;
};
inline constexpr size_t kNoteBytes = 24;
inline constexpr size_t kMostNotes = (kMessageBytes - kMessageHeaderBytes) / kNoteBytes;
void EncodeNote(const Note& note, uint8_t out[kNoteBytes]);
absl::StatusOr<Note> DecodeNote(const uint8_t in[kNoteBytes]);

// --- records ---

inline constexpr uint32_t kRecordMagic = 0x52525343;  // "CSRR"
inline constexpr size_t kRecordBytes = PlacingCarrier::kRecordBytes;

enum class RecordKind : uint8_t {
  kRaw = 1,    // `bytes` of payload follow
  kOffer = 2,  // `bytes` of payload are to be had: at `address`, if the client sends them
};
struct Record {
  RecordKind kind{};
  uint32_t bytes = 0;
  uint32_t key = 0;
  uint64_t address = 0;
};
void EncodeRecord(const Record& record, uint8_t out[kRecordBytes]);
bool HasRecordMagic(const uint8_t* bytes);
// InvalidArgument: a kind that is none, or no bytes.
absl::StatusOr<Record> DecodeRecord(const uint8_t in[kRecordBytes]);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_FORMAT_H_
