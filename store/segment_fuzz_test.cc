// Whatever bytes a segment file holds, reading it never goes out of bounds and ends in a state that
// a second reading confirms.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/key_hash.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "store/extent_allocator.h"
#include "store/header_table.h"
#include "store/namespace_record.h"
#include "store/segment.h"

namespace cistern::store {
namespace {

// What was let through: the test fails if its inputs never get so far.
uint64_t g_headers_kept = 0;
uint64_t g_slots_read = 0;
uint64_t g_superblocks_accepted = 0;

constexpr Extent kPayload{64 * Extent::kAlignment, 256 * Extent::kAlignment};

void FuzzHeaders(const uint8_t* data, size_t size) {
  std::vector<ChunkHeader> memory(std::min<size_t>(size / sizeof(ChunkHeader), 64));
  if (memory.empty()) return;
  std::memcpy(memory.data(), data, memory.size() * sizeof(ChunkHeader));
  // An input cannot guess CRCs: where the first byte of the name asks for it, make it right.
  for (ChunkHeader& h : memory) {
    if (h.key_id[0] % 4 != 0) h.crc32c = HeaderCrc(h);
  }
  HeaderTable table(absl::MakeSpan(memory));
  std::vector<HeaderTable::Found> found;
  const HeaderTable::ScanCounts counts = table.Scan(kPayload, &found);
  CISTERN_CHECK(counts.free + counts.writing + counts.damaged + counts.committed == memory.size());
  CISTERN_CHECK(counts.committed == found.size() && table.used() == found.size());
  std::vector<ScannedHeader> scanned;
  for (const HeaderTable::Found& f : found) {
    const HeaderFields& h = f.fields;
    CISTERN_CHECK(h.extent.offset >= kPayload.offset && h.extent.end() <= kPayload.end());
    CISTERN_CHECK(h.length <= h.extent.bytes);
    scanned.push_back({0, f});
  }
  const ResolvedScan resolved = ResolveScan(scanned);
  CISTERN_CHECK(resolved.kept.size() + resolved.dropped.size() == found.size());
  g_headers_kept += resolved.kept.size();
  std::vector<Extent> used;
  for (const ScannedHeader& s : resolved.kept) used.push_back(s.found.fields.extent);
  ExtentAllocator extents(kPayload.offset, kPayload.bytes);
  CISTERN_CHECK(extents.Rebuild(used).ok());
  for (const ScannedHeader& s : resolved.dropped) {
    table.Free(s.found.index);
    table.Recycle(s.found.index);
  }
  HeaderTable again(absl::MakeSpan(memory));
  found.clear();
  const HeaderTable::ScanCounts second = again.Scan(kPayload, &found);
  CISTERN_CHECK(second.writing == 0 && second.damaged == 0);
  CISTERN_CHECK(second.committed == resolved.kept.size());
}

void FuzzNamespaceSlot(const uint8_t* data, size_t size) {
  NamespaceSlot slot{};
  std::memcpy(&slot, data, std::min(size, sizeof(slot)));
  bool damaged = false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (const auto record = ReadNamespaceSlot(slot, &damaged)) {
      CISTERN_CHECK(!damaged && CheckNamespaceRecord(*record).ok());
      ++g_slots_read;
      NamespaceSlot written{};
      WriteNamespaceSlot(*record, &written);
      CISTERN_CHECK(ReadNamespaceSlot(written, nullptr).has_value());
    }
    // Once more as if its CRC and id were right: only the lengths and values can be wrong.
    slot.magic = kNamespaceSlotMagic;
    if (slot.tenant_length <= kMaxTenantBytes && slot.name_length <= kMaxNamespaceNameBytes &&
        slot.fingerprint_length <= kMaxFingerprintBytes) {
      const auto text = [](const uint8_t* p, size_t n) {
        return std::string(reinterpret_cast<const char*>(p), n);
      };
      const NamespaceId id = DeriveNamespaceId(text(slot.tenant, slot.tenant_length),
                                               text(slot.name, slot.name_length),
                                               text(slot.fingerprint, slot.fingerprint_length));
      std::memcpy(slot.id, id.bytes.data(), sizeof(slot.id));
    }
    slot.crc32c = Crc32c(reinterpret_cast<const char*>(&slot) + 8, sizeof(slot) - 8);
  }
}

void FuzzSuperblock(const uint8_t* data, size_t size) {
  Superblock superblock{};
  std::memcpy(&superblock, data, std::min(size, sizeof(superblock)));
  superblock.magic = kSegmentMagic;
  superblock.format_version = kSegmentFormatVersion;
  superblock.crc32c = SuperblockCrc(superblock);
  const PoolId pool = PoolId::FromBytes(superblock.pool_id);
  const auto layout = CheckSuperblock(superblock, superblock.segment_bytes, pool, "input");
  if (!layout.ok()) return;
  ++g_superblocks_accepted;
  CISTERN_CHECK(layout->segment_bytes <= kMaxSegmentBytes);
  CISTERN_CHECK(layout->namespace_offset >= kSuperblockBytes);
  CISTERN_CHECK(layout->namespace_offset + layout->namespace_slots * kNamespaceSlotBytes <=
                layout->header_offset);
  CISTERN_CHECK(layout->header_offset + layout->header_count * kHeaderBytes <=
                layout->payload_offset);
  CISTERN_CHECK(layout->payload_offset < layout->segment_bytes);
}

void FuzzOne(const uint8_t* data, size_t size) {
  if (size == 0) return;
  switch (data[0] % 3) {
    case 0:
      return FuzzHeaders(data + 1, size - 1);
    case 1:
      return FuzzNamespaceSlot(data + 1, size - 1);
    case 2:
      return FuzzSuperblock(data + 1, size - 1);
  }
}

// Headers that are nearly right, so that more than the CRC check is reached.
std::vector<uint8_t> PlausibleHeaders(std::mt19937* random) {
  std::vector<ChunkHeader> headers(1 + (*random)() % 20);
  for (ChunkHeader& h : headers) {
    h.word = PackHeaderWord(static_cast<HeaderState>((*random)() % 5), Generation((*random)() % 3));
    if ((*random)() % 8 == 0) h.word = uint64_t{(*random)()} << 32 | (*random)();
    h.key_id[0] = static_cast<uint8_t>((*random)());
    h.version = (*random)() % 50;
    h.payload_offset = ((*random)() % 330) * Extent::kAlignment;
    h.payload_length = (*random)() % 40'000;
    h.extent_units = (*random)() % 12;
    h.shard = static_cast<uint16_t>((*random)() % 4100);
    h.digest_kind = static_cast<uint8_t>((*random)() % 4);
    h.part_bytes = (*random)() % 3 == 0 ? 4096u << (*random)() % 4 : 0;
  }
  std::vector<uint8_t> bytes(1 + headers.size() * sizeof(ChunkHeader));
  bytes[0] = 0;
  std::memcpy(bytes.data() + 1, headers.data(), headers.size() * sizeof(ChunkHeader));
  return bytes;
}

// The superblock of a real layout with up to three fields changed.
std::vector<uint8_t> PlausibleSuperblock(std::mt19937* random) {
  const SegmentLayout layout = *SegmentLayout::Make(kMinSegmentBytes, 65'536);
  Superblock s{};
  s.segment_bytes = layout.segment_bytes;
  s.namespace_offset = layout.namespace_offset;
  s.namespace_slots = layout.namespace_slots;
  s.namespace_slot_bytes = kNamespaceSlotBytes;
  s.header_offset = layout.header_offset;
  s.header_count = layout.header_count;
  s.header_bytes = kHeaderBytes;
  s.payload_offset = layout.payload_offset;
  std::vector<uint8_t> bytes(1 + sizeof(s));
  bytes[0] = 2;
  std::memcpy(bytes.data() + 1, &s, sizeof(s));
  for (uint32_t changes = (*random)() % 4; changes > 0; --changes) {
    // A byte of the numbers from segment_bytes to payload_offset.
    bytes[1 + 48 + (*random)() % 48] ^= static_cast<uint8_t>(1 << (*random)() % 8);
  }
  return bytes;
}

TEST(SegmentFuzzTest, RandomAndNearlyRightBytes) {
  std::mt19937 random(20'262);
  for (int round = 0; round < 4500; ++round) {
    std::vector<uint8_t> data;
    if (round % 3 == 0) {
      data = PlausibleHeaders(&random);
    } else if (round % 3 == 1) {
      data = PlausibleSuperblock(&random);
    } else {
      data.resize(random() % 6000);
      for (size_t i = 0; i + 4 <= data.size(); i += 4) {
        const uint32_t word = random() % 4 == 0 ? random() : random() % 300;
        std::memcpy(&data[i], &word, 4);
      }
      if (data.size() > 60 && data[0] % 3 == 1) {
        data[1 + 44] %= 4;  // verify
        data[1 + 45] %= 4;  // digest
        if (random() % 4 != 0) {
          const uint32_t part_bytes = random() % 3 == 0 ? 0 : kMinPartBytes << random() % 10;
          std::memcpy(&data[1 + offsetof(NamespaceSlot, part_bytes)], &part_bytes, 4);
        }
        for (const int length : {48, 50, 52}) data[1 + length + 1] %= 2;
      }
    }
    FuzzOne(data.data(), data.size());
  }
  EXPECT_GT(g_headers_kept, 100u);
  EXPECT_GT(g_slots_read, 100u);
  EXPECT_GT(g_superblocks_accepted, 100u);
}

}  // namespace
}  // namespace cistern::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cistern::store::FuzzOne(data, size);
  return 0;
}
