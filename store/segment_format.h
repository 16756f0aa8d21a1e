// The bytes of a DRAM segment, format 1. docs/formats/segment.md has the byte tables; the
// static_asserts here keep the two together. All integers are little-endian.
//
//   superblock (4 KiB) | namespace slots | header table | payload
//
// A segment is written by one store process only (the file is locked) and may outlive it, so every
// change is ordered such that a kill between any two stores leaves something a scan understands.
#ifndef CISTERN_STORE_SEGMENT_FORMAT_H_
#define CISTERN_STORE_SEGMENT_FORMAT_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace cistern::store {

static_assert(std::endian::native == std::endian::little, "segments are read in place");

inline constexpr uint64_t kSegmentMagic = 0x3147455354534943;  // "CISTSEG1" as bytes
inline constexpr uint32_t kSegmentFormatVersion = 1;
inline constexpr uint64_t kSuperblockBytes = 4096;
inline constexpr uint64_t kMinSegmentBytes = uint64_t{8} << 20;
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{64} << 30;

struct Superblock {
  uint64_t magic;           // written last: 0 = formatting was cut short, nothing is in it
  uint32_t format_version;  // kSegmentFormatVersion
  uint32_t superblock_bytes;
  uint8_t pool_id[16];
  uint8_t segment_id[16];  // random, made at format
  uint64_t segment_bytes;
  uint64_t namespace_offset;
  uint32_t namespace_slots;
  uint32_t namespace_slot_bytes;
  uint64_t header_offset;
  uint32_t header_count;
  uint32_t header_bytes;
  uint64_t payload_offset;  // to the end of the segment
  uint64_t created_unix_ms;
  uint8_t reserved[3988];  // zero
  uint32_t crc32c;         // of the bytes before it
};
static_assert(sizeof(Superblock) == kSuperblockBytes);
static_assert(offsetof(Superblock, magic) == 0);
static_assert(offsetof(Superblock, format_version) == 8);
static_assert(offsetof(Superblock, superblock_bytes) == 12);
static_assert(offsetof(Superblock, pool_id) == 16);
static_assert(offsetof(Superblock, segment_id) == 32);
static_assert(offsetof(Superblock, segment_bytes) == 48);
static_assert(offsetof(Superblock, namespace_offset) == 56);
static_assert(offsetof(Superblock, namespace_slots) == 64);
static_assert(offsetof(Superblock, namespace_slot_bytes) == 68);
static_assert(offsetof(Superblock, header_offset) == 72);
static_assert(offsetof(Superblock, header_count) == 80);
static_assert(offsetof(Superblock, header_bytes) == 84);
static_assert(offsetof(Superblock, payload_offset) == 88);
static_assert(offsetof(Superblock, created_unix_ms) == 96);
static_assert(offsetof(Superblock, reserved) == 104);
static_assert(offsetof(Superblock, crc32c) == 4092);

// The state byte of a header.
enum class HeaderState : uint8_t {
  kFree = 0,
  kWriting = 1,    // reserved; nothing else in the header means anything
  kCommitted = 2,  // every byte is in place
  kVerified = 3,   // committed, and the store has checked the digest itself
};

inline constexpr uint16_t kHeaderMagic = 0x4843;  // "CH" as bytes
inline constexpr uint8_t kHeaderFormat = 1;
inline constexpr uint64_t kHeaderBytes = 128;
inline constexpr uint64_t kHeaderCrcBegin = 4;
inline constexpr uint64_t kHeaderCrcEnd = 120;
// ChunkHeader::flags
inline constexpr uint8_t kHeaderFlagKeptKey = 1;  // u16 length and the key follow the part table

// The first 8 bytes of a header as one atomic word: magic u16, format u8, state u8, generation u32.
constexpr uint64_t PackHeaderWord(HeaderState state, Generation generation) {
  return uint64_t{kHeaderMagic} | uint64_t{kHeaderFormat} << 16 |
         uint64_t{static_cast<uint8_t>(state)} << 24 | uint64_t{generation.value} << 32;
}
// A fresh (zero) header reads as free with generation 0. Any other word without our magic and
// format is not a header of ours.
constexpr bool HeaderWordIsOurs(uint64_t word) {
  return word == 0 || (word & 0xFFFFFF) == (uint64_t{kHeaderMagic} | uint64_t{kHeaderFormat} << 16);
}
constexpr HeaderState HeaderWordState(uint64_t word) {
  return static_cast<HeaderState>(word >> 24 & 0xFF);
}
constexpr Generation HeaderWordGeneration(uint64_t word) {
  return Generation(static_cast<uint32_t>(word >> 32));
}

// The self-description of a chunk.
struct ChunkHeader {
  uint64_t word;  // through std::atomic_ref only
  uint8_t key_id[16];
  uint8_t namespace_id[16];
  uint64_t version;
  uint64_t payload_offset;  // in the segment
  uint64_t payload_length;
  uint64_t root_digest;
  uint64_t created_unix_ms;
  uint64_t expiry_unix_ms;  // 0 = none
  uint32_t extent_units;    // extent length in 4 KiB units
  uint16_t shard;
  uint8_t digest_kind;  // wire::DigestKind
  uint8_t flags;
  uint32_t tenant_tag;
  uint32_t part_bytes;          // 0 = one part
  uint64_t single_part_digest;  // of a one-part chunk
  uint64_t mutation;            // place in the order of a mutable namespace's puts; else 0
  uint32_t crc32c;              // of bytes 4..119: with the generation, without the state
  uint32_t last_access_unix_s;  // outside the CRC; through std::atomic_ref only
};
static_assert(sizeof(ChunkHeader) == kHeaderBytes);
static_assert(std::is_trivially_copyable_v<ChunkHeader>);
static_assert(offsetof(ChunkHeader, word) == 0);
static_assert(offsetof(ChunkHeader, key_id) == 8);
static_assert(offsetof(ChunkHeader, namespace_id) == 24);
static_assert(offsetof(ChunkHeader, version) == 40);
static_assert(offsetof(ChunkHeader, payload_offset) == 48);
static_assert(offsetof(ChunkHeader, payload_length) == 56);
static_assert(offsetof(ChunkHeader, root_digest) == 64);
static_assert(offsetof(ChunkHeader, created_unix_ms) == 72);
static_assert(offsetof(ChunkHeader, expiry_unix_ms) == 80);
static_assert(offsetof(ChunkHeader, extent_units) == 88);
static_assert(offsetof(ChunkHeader, shard) == 92);
static_assert(offsetof(ChunkHeader, digest_kind) == 94);
static_assert(offsetof(ChunkHeader, flags) == 95);
static_assert(offsetof(ChunkHeader, tenant_tag) == 96);
static_assert(offsetof(ChunkHeader, part_bytes) == 100);
static_assert(offsetof(ChunkHeader, single_part_digest) == 104);
static_assert(offsetof(ChunkHeader, mutation) == 112);
static_assert(offsetof(ChunkHeader, crc32c) == 120);
static_assert(offsetof(ChunkHeader, last_access_unix_s) == 124);
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

inline constexpr uint32_t kNamespaceSlotMagic = 0x31534E43;  // "CNS1" as bytes
inline constexpr uint64_t kNamespaceSlotBytes = 5120;
inline constexpr size_t kMaxTenantBytes = 256;
inline constexpr size_t kMaxNamespaceNameBytes = 256;
inline constexpr size_t kMaxFingerprintBytes = 4096;
// NamespaceSlot::flags
inline constexpr uint8_t kNamespaceFlagDigestSet = 1;
inline constexpr uint8_t kNamespaceFlagMutable = 2;
inline constexpr uint8_t kNamespaceFlagKeepKeys = 4;

// One namespace that has, or had, chunks in this segment.
struct NamespaceSlot {
  uint32_t magic;   // written last, cleared first: 0 = free
  uint32_t crc32c;  // of the bytes behind it
  uint8_t id[16];
  uint64_t valid_from;  // chunks with a lower version were removed for good
  uint64_t ttl_ms;
  uint32_t part_bytes;
  uint8_t verify;  // wire::VerifyPolicy
  uint8_t digest;  // wire::DigestKind
  uint8_t flags;
  uint8_t reserved0;
  uint16_t tenant_length;
  uint16_t name_length;
  uint16_t fingerprint_length;
  uint8_t reserved1[10];
  uint8_t tenant[kMaxTenantBytes];
  uint8_t name[kMaxNamespaceNameBytes];
  uint8_t fingerprint[kMaxFingerprintBytes];
  uint8_t reserved2[448];  // zero
};
static_assert(sizeof(NamespaceSlot) == kNamespaceSlotBytes);
static_assert(offsetof(NamespaceSlot, magic) == 0);
static_assert(offsetof(NamespaceSlot, crc32c) == 4);
static_assert(offsetof(NamespaceSlot, id) == 8);
static_assert(offsetof(NamespaceSlot, valid_from) == 24);
static_assert(offsetof(NamespaceSlot, ttl_ms) == 32);
static_assert(offsetof(NamespaceSlot, part_bytes) == 40);
static_assert(offsetof(NamespaceSlot, verify) == 44);
static_assert(offsetof(NamespaceSlot, digest) == 45);
static_assert(offsetof(NamespaceSlot, flags) == 46);
static_assert(offsetof(NamespaceSlot, tenant_length) == 48);
static_assert(offsetof(NamespaceSlot, name_length) == 50);
static_assert(offsetof(NamespaceSlot, fingerprint_length) == 52);
static_assert(offsetof(NamespaceSlot, tenant) == 64);
static_assert(offsetof(NamespaceSlot, name) == 320);
static_assert(offsetof(NamespaceSlot, fingerprint) == 576);
static_assert(offsetof(NamespaceSlot, reserved2) == 4672);

// Keeps the compiler from moving stores across. That is all a kill needs: what a killed process
// leaves is its stores in program order. Readers in other processes rely on words stored with
// release.
inline void OrderStores() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// Where the tables of a segment lie.
struct SegmentLayout {
  uint64_t segment_bytes = 0;
  uint64_t namespace_offset = 0;
  uint32_t namespace_slots = 0;
  uint64_t header_offset = 0;
  uint32_t header_count = 0;
  uint64_t payload_offset = 0;
  uint64_t payload_bytes() const { return segment_bytes - payload_offset; }

  // The layout of a new segment. InvalidArgument: bytes outside [kMinSegmentBytes,
  // kMaxSegmentBytes] or not a multiple of 4 KiB, or expected_chunk_bytes outside [4 KiB, 1 GiB].
  static absl::StatusOr<SegmentLayout> Make(uint64_t segment_bytes, uint64_t expected_chunk_bytes);
};

// The part table of a chunk of several parts
// starts at the payload's end rounded up to 8, so that it can be read in place.
constexpr uint64_t PartTableOffset(uint64_t payload_length) { return RoundUp(payload_length, 8); }
// A kept key (u16 length, then its bytes) follows the part table, or the payload of one part.
constexpr uint64_t KeptKeyOffset(uint64_t payload_length, uint32_t parts) {
  return PartTableOffset(payload_length) + (parts > 1 ? uint64_t{8} * parts : 0);
}
// `kept_key_bytes`: of the key alone; 0 = none is kept.
constexpr uint64_t ExtentBytesFor(uint64_t payload_length, uint32_t parts,
                                  uint64_t kept_key_bytes = 0) {
  uint64_t bytes =
      parts > 1 ? PartTableOffset(payload_length) + uint64_t{8} * parts : payload_length;
  if (kept_key_bytes != 0) {
    bytes = KeptKeyOffset(payload_length, parts) + sizeof(uint16_t) + kept_key_bytes;
  }
  return RoundUp(bytes, Extent::kAlignment);
}

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_FORMAT_H_
