// What lies in the memory that a client and a store share, and the records that stand for payload
// on their socket. The tables are in docs/formats/shm.md. Both ends run on one host, of one byte
// order: records are little-endian, counters native.
#ifndef CISTERN_TRANSPORT_SHM_FORMAT_H_
#define CISTERN_TRANSPORT_SHM_FORMAT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/piece_carrier.h"

namespace cistern::transport {

// --- the shared memory ---

inline constexpr uint64_t kRingMagic = 0x31474E4952545343;  // "CSTRING1"
inline constexpr size_t kRingPageBytes = 4096;
inline constexpr uint64_t kMinRingBytes = 256 << 10;
inline constexpr uint64_t kMaxRingBytes = 64 << 20;

// One way. Each half is written by one side only, and is on a cache line of its own.
struct RingCounters {
  // By the receiver: payload bytes taken since the connection began.
  std::atomic<uint64_t> released;
  char pad0[56];
  // By the sender: tell me when `released` has come so far. 0 = nothing to tell.
  std::atomic<uint64_t> wake_at;
  char pad1[56];
};
static_assert(sizeof(RingCounters) == 128);
static_assert(offsetof(RingCounters, wake_at) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The first page; the rings follow: to the store, then to the client.
struct RingPage {
  uint64_t magic;
  uint64_t ring_bytes;
  char pad[48];
  RingCounters to_store;
  RingCounters to_client;
};
static_assert(sizeof(RingPage) == 320 && sizeof(RingPage) <= kRingPageBytes);
static_assert(offsetof(RingPage, to_store) == 64);
static_assert(offsetof(RingPage, to_client) == 192);

inline constexpr uint64_t RingMemoryBytes(uint64_t ring_bytes) {
  return kRingPageBytes + 2 * ring_bytes;
}

// --- records ---

inline constexpr uint32_t kRecordMagic = 0x43505343;  // "CSPC"
// The longest piece: what fits the cache while it is digested, and what a cancel waits for.
inline constexpr uint32_t kMaxPieceBytes = 256 << 10;

enum class RecordKind : uint8_t {
  kRing = 1,    // a piece of payload lies in the ring
  kLent = 2,    // a piece of payload lies in lent memory (client to store)
  kRoom = 3,    // the ring has room again (store to client)
  kLend = 4,    // lent memory has a number from now on; its descriptor comes along
  kUnlend = 5,  // it has not any more
};

struct PieceRecord {
  RecordKind kind{};
  uint16_t buffer = 0;    // kLent, kLend, kUnlend
  uint32_t bytes = 0;     // kRing, kLent: 1 to kMaxPieceBytes
  uint64_t position = 0;  // kRing: bytes sent before it; kLent: offset there; kLend: its size
};

inline void EncodeRecord(const PieceRecord& record, uint8_t out[PieceCarrier::kRecordBytes]) {
  std::memset(out, 0, PieceCarrier::kRecordBytes);
  std::memcpy(out, &kRecordMagic, 4);
  out[4] = static_cast<uint8_t>(record.kind);
  std::memcpy(out + 6, &record.buffer, 2);
  std::memcpy(out + 8, &record.bytes, 4);
  std::memcpy(out + 16, &record.position, 8);
}
inline bool HasRecordMagic(const uint8_t* in) {
  return std::memcmp(in, &kRecordMagic, sizeof(kRecordMagic)) == 0;
}
inline PieceRecord DecodeRecord(const uint8_t in[PieceCarrier::kRecordBytes]) {
  PieceRecord record;
  record.kind = static_cast<RecordKind>(in[4]);
  std::memcpy(&record.buffer, in + 6, 2);
  std::memcpy(&record.bytes, in + 8, 4);
  std::memcpy(&record.position, in + 16, 8);
  return record;
}
static_assert(PieceCarrier::kRecordBytes == 24);

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_SHM_FORMAT_H_
