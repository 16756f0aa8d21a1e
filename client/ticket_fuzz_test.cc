// Tickets come from other processes: any bytes must be refused or make a sound LookupResult.
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "base/crc32c.h"
#include "client/ticket.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

void Check(std::string_view bytes) {
  const absl::StatusOr<LookupResult> result = ParseTicket(bytes);
  if (!result.ok()) return;
  // What passed is consistent, and no larger than what it came from.
  ASSERT_EQ(result->stores.size(), result->ids.size() * result->shard_count);
  ASSERT_EQ(result->present.size(), result->ids.size());
  ASSERT_LE(result->ids.size() * 16, bytes.size());
  for (const uint16_t store : result->stores) {
    ASSERT_TRUE(store == LookupResult::kNoStore || store < result->store_ids.size());
  }
  ASSERT_EQ(result->Serialize().size(), bytes.size());
}

}  // namespace
}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As it is, and with a checksum that fits, so that the fields behind it are reached.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  cistern::Check(bytes);
  const uint32_t crc = cistern::Crc32c(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  cistern::Check(bytes);
  return 0;
}

namespace cistern {
namespace {

TEST(TicketFuzzTest, RandomBytesAndMutatedTickets) {
  constexpr uint64_t kSeed = 20'260'101;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 100'000; ++round) {
    std::string bytes;
    if (round % 2 == 0) {
      bytes.resize(random() % 200);
      for (char& c : bytes) c = static_cast<char>(random());
      if (bytes.size() >= 4) std::memcpy(bytes.data(), "CTK1", 4);
    } else {
      LookupResult result;
      result.shard_count = static_cast<uint16_t>(1 + random() % 3);
      result.ids.resize(random() % 5);
      result.store_ids.resize(1 + random() % 3);
      result.stores.assign(result.ids.size() * result.shard_count, 0);
      bytes = result.Serialize();
      bytes.resize(bytes.size() - 4);  // the checksum is made anew
      for (uint64_t flips = random() % 3; flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cistern
