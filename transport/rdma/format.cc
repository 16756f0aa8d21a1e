#include "transport/rdma/format.h"

#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cistern::transport::rdma {
namespace {

static_assert(std::endian::native == std::endian::little, "the tables are written in place");
static_assert(kNoteBytes == 24 && kRecordBytes == 24 && kGreetingBytes == 28);

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

void EncodeGreeting(const Greeting& greeting, uint8_t out[kGreetingBytes]) {
  std::memset(out, 0, kGreetingBytes);
  Put<uint32_t>(out, 0, kGreetingMagic);
  Put<uint8_t>(out, 4, greeting.version);
  Put<uint8_t>(out, 5, kGreetingBytes);
  Put<uint16_t>(out, 6, greeting.reads);
  std::memcpy(out + 8, greeting.nonce, sizeof(greeting.nonce));
  Put<uint16_t>(out, 24, greeting.mtu);
}

absl::StatusOr<Greeting> DecodeGreeting(const void* data, size_t bytes) {
  const auto* in = static_cast<const uint8_t*>(data);
  // The connection manager pads with zeros: the length is carried along.
  if (in == nullptr || bytes < kGreetingBytes || Get<uint32_t>(in, 0) != kGreetingMagic ||
      in[5] < kGreetingBytes) {
    return absl::InvalidArgumentError("rdma: the private data is no cistern greeting");
  }
  Greeting greeting;
  greeting.version = in[4];
  if (greeting.version != kWireVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("rdma: wire version ", greeting.version, ", this side speaks ", kWireVersion));
  }
  greeting.reads = Get<uint16_t>(in, 6);
  std::memcpy(greeting.nonce, in + 8, sizeof(greeting.nonce));
  greeting.mtu = Get<uint16_t>(in, 24);
  if (greeting.mtu != 0 && (greeting.mtu < 256 || !std::has_single_bit(greeting.mtu))) {
    return absl::InvalidArgumentError(absl::StrCat("rdma: an MTU of ", greeting.mtu, " bytes"));
  }
  return greeting;
}

void EncodeMessageHeader(const MessageHeader& header, uint8_t out[kMessageHeaderBytes]) {
  Put<uint16_t>(out, 0, kMessageMagic);
  Put<uint16_t>(out, 2, header.notes);
  Put<uint16_t>(out, 4, header.stream_credits);
  Put<uint16_t>(out, 6, header.note_credits);
  Put<uint32_t>(out, 8, header.stream_bytes);
  Put<uint32_t>(out, 12, 0);
}

absl::StatusOr<MessageHeader> DecodeMessageHeader(const uint8_t* data, size_t bytes) {
  MessageHeader header;
  if (bytes < kMessageHeaderBytes || Get<uint16_t>(data, 0) != kMessageMagic) {
    return absl::InvalidArgumentError("rdma: that is no message");
  }
  header.notes = Get<uint16_t>(data, 2);
  header.stream_credits = Get<uint16_t>(data, 4);
  header.note_credits = Get<uint16_t>(data, 6);
  header.stream_bytes = Get<uint32_t>(data, 8);
  if (kMessageHeaderBytes + uint64_t{header.notes} * kNoteBytes + header.stream_bytes != bytes) {
    return absl::InvalidArgumentError("rdma: a message of another length than it says");
  }
  return header;
}

void EncodeNote(const Note& note, uint8_t out[kNoteBytes]) {
  std::memset(out, 0, kNoteBytes);
  Put<uint8_t>(out, 0, static_cast<uint8_t>(note.kind));
  Put<uint32_t>(out, 4, note.bytes);
  Put<uint32_t>(out, 8, note.key);
  Put<uint64_t>(out, 16, note.address);
}

absl::StatusOr<Note> DecodeNote(const uint8_t in[kNoteBytes]) {
  Note note;
  if (in[0] < 1 || in[0] > 3) return absl::InvalidArgumentError("rdma: a note of no kind");
  note.kind = static_cast<NoteKind>(in[0]);
  note.bytes = Get<uint32_t>(in, 4);
  note.key = Get<uint32_t>(in, 8);
  note.address = Get<uint64_t>(in, 16);
  if (note.bytes == 0) return absl::InvalidArgumentError("rdma: a note of no bytes");
  return note;
}

void EncodeRecord(const Record& record, uint8_t out[kRecordBytes]) {
  std::memset(out, 0, kRecordBytes);
  Put<uint32_t>(out, 0, kRecordMagic);
  Put<uint8_t>(out, 4, static_cast<uint8_t>(record.kind));
  Put<uint32_t>(out, 8, record.bytes);
  Put<uint32_t>(out, 12, record.key);
  Put<uint64_t>(out, 16, record.address);
}

bool HasRecordMagic(const uint8_t* bytes) { return Get<uint32_t>(bytes, 0) == kRecordMagic; }

absl::StatusOr<Record> DecodeRecord(const uint8_t in[kRecordBytes]) {
  if (!HasRecordMagic(in) || in[4] < 1 || in[4] > 2) {
    return absl::InvalidArgumentError("rdma: a record of no kind");
  }
  Record record;
  record.kind = static_cast<RecordKind>(in[4]);
  record.bytes = Get<uint32_t>(in, 8);
  record.key = Get<uint32_t>(in, 12);
  record.address = Get<uint64_t>(in, 16);
  if (record.bytes == 0) return absl::InvalidArgumentError("rdma: a record of no bytes");
  return record;
}

}  // namespace cistern::transport::rdma
