#include "store/record_log.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/columns.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/types.pb.h"

namespace cistern::store {
namespace {

Record Make(uint8_t key, uint64_t version, uint8_t tiers = wire::TIER_DRAM) {
  Record r;
  r.name.id.bytes.fill(key);
  r.version = Version(version);
  r.length = 4096;
  r.tiers = tiers;
  r.cause = tiers == 0 ? wire::CAUSE_REMOVED : wire::CAUSE_PUT;
  return r;
}

TEST(RecordLogTest, NumbersCountUpFromOne) {
  RecordLog log(10);
  EXPECT_EQ(log.range().first, 1u);
  EXPECT_EQ(log.range().next, 1u);
  EXPECT_EQ(log.Append(Make(1, 1)), 1u);
  EXPECT_EQ(log.Append(Make(2, 2)), 2u);
  EXPECT_EQ(log.range().next, 3u);
}

TEST(RecordLogTest, ColumnsAreShortWhereEverythingIsTheSame) {
  RecordLog log(10);
  Record a = Make(1, 0x0102);
  Record b = Make(2, 0x0304);
  a.namespace_index = b.namespace_index = 9;
  log.Append(a);
  log.Append(b);
  wire::Delta delta;
  ASSERT_OK_AND_ASSIGN(const size_t n, log.Take(1, 100, &delta));
  EXPECT_EQ(n, 2u);
  EXPECT_EQ(delta.seq_first(), 1u);
  EXPECT_EQ(delta.ids(), std::string(16, 1) + std::string(16, 2));
  EXPECT_EQ(delta.versions(), std::string("\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0", 16));
  EXPECT_EQ(delta.lengths(), std::string("\0\x10\0\0\0\x10\0\0", 8));
  EXPECT_EQ(delta.shards(), "");
  EXPECT_EQ(delta.tiers(), "");
  EXPECT_EQ(delta.expiries(), "");
  EXPECT_EQ(delta.namespaces(), std::string("\x09\0\0\0", 4));
  EXPECT_EQ(delta.causes(), "\x01");
}

TEST(RecordLogTest, ColumnsAreFullWhereAnythingDiffers) {
  RecordLog log(10);
  Record a = Make(1, 1);
  Record b = Make(2, 2, 0);
  b.name.shard = Shard(0x0203);
  b.expiry_unix_s = 0x01020304;
  b.namespace_index = 5;
  log.Append(a);
  log.Append(b);
  wire::Delta delta;
  ASSERT_OK(log.Take(1, 100, &delta));
  EXPECT_EQ(delta.shards(), std::string("\0\0\x03\x02", 4));
  EXPECT_EQ(delta.tiers(), std::string("\x01\0", 2));
  EXPECT_EQ(delta.expiries(), std::string("\0\0\0\0\x04\x03\x02\x01", 8));
  EXPECT_EQ(delta.namespaces(), std::string("\0\0\0\0\x05\0\0\0", 8));
  EXPECT_EQ(delta.causes(), std::string("\x01\x07", 2));
}

TEST(RecordLogTest, TakeGivesAtMostWhatIsAskedAndAgainUntilAcknowledged) {
  RecordLog log(100);
  for (uint64_t v = 1; v <= 5; ++v) log.Append(Make(1, v));
  wire::Delta delta;
  EXPECT_EQ(*log.Take(2, 3, &delta), 3u);
  EXPECT_EQ(delta.seq_first(), 2u);
  EXPECT_EQ(*log.Take(2, 100, &delta), 4u);
  EXPECT_EQ(*log.Take(6, 100, &delta), 0u);  // nothing yet
  log.Ack(4);
  EXPECT_EQ(log.range().first, 4u);
  EXPECT_THAT(log.Take(3, 100, &delta), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_EQ(*log.Take(4, 100, &delta), 2u);
  log.Ack(2);  // late
  EXPECT_EQ(log.range().first, 4u);
  log.Ack(1'000'000);  // more than there is
  EXPECT_EQ(log.range().first, 6u);
  EXPECT_EQ(log.Append(Make(1, 6)), 6u);
}

TEST(RecordLogTest, OverflowDropsTheOldestAndAsksForASnapshot) {
  RecordLog log(4);
  for (uint64_t v = 1; v <= 6; ++v) log.Append(Make(1, v));
  EXPECT_EQ(log.range().first, 3u);
  EXPECT_EQ(log.dropped(), 2u);
  wire::Delta delta;
  EXPECT_THAT(log.Take(2, 10, &delta), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_EQ(*log.Take(3, 10, &delta), 4u);
  EXPECT_EQ(delta.versions().substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_THAT(log.Take(8, 10, &delta), StatusIs(absl::StatusCode::kOutOfRange));  // the future
}

TEST(RecordLogTest, GrowsWithoutLosingAnything) {
  RecordLog log(10'000);
  for (uint64_t v = 1; v <= 900; ++v) log.Append(Make(1, v));
  log.Ack(700);
  for (uint64_t v = 901; v <= 9000; ++v) log.Append(Make(1, v));
  wire::Delta delta;
  ASSERT_EQ(*log.Take(700, 10'000, &delta), 8301u);
  const auto versions = *Column<uint64_t>::Parse(delta.versions(), 8301, "versions", false, false);
  for (size_t i = 0; i < 8301; ++i) ASSERT_EQ(versions[i], 700 + i);
}

TEST(RecordLogTest, WaitEndsWithARecordOrInTime) {
  RecordLog log(10);
  EXPECT_FALSE(log.WaitFor(1, absl::ZeroDuration()));
  std::thread appender([&] { log.Append(Make(1, 1)); });
  EXPECT_TRUE(log.WaitFor(1, absl::Seconds(30)));
  appender.join();
  EXPECT_FALSE(log.WaitFor(2, absl::Milliseconds(1)));
}

// The master's rule: a record counts when its version is not older than what is known.
class Replica {
 public:
  void Apply(const wire::Delta& delta, size_t n) {
    const auto ids = *KeyColumn::Parse(delta.ids());
    const auto versions = *Column<uint64_t>::Parse(delta.versions(), n, "versions", false, false);
    const auto tiers =
        *Column<uint8_t>::Parse(delta.tiers(), n, "tiers", true, false, wire::TIER_DRAM);
    for (size_t i = 0; i < n; ++i) {
      auto& [version, tier] = state_[ids[i]];
      if (versions[i] < version) continue;
      // Gone for good at this version: an old "present" of the same version is told twice.
      if (versions[i] == version && tier == 0) continue;
      version = versions[i];
      tier = tiers[i];
    }
  }
  const std::map<KeyId, std::pair<uint64_t, uint8_t>>& state() const { return state_; }

 private:
  std::map<KeyId, std::pair<uint64_t, uint8_t>> state_;
};

TEST(RecordLogTest, ReplayingAnyPrefixAgainChangesNothing) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    RecordLog log(1000);
    std::map<uint8_t, uint64_t> present;
    uint64_t version = 0;
    while (log.range().next <= 300) {
      const uint8_t key = static_cast<uint8_t>(random() % 20);
      const auto it = present.find(key);
      if (it == present.end()) {
        log.Append(Make(key, ++version));
        present[key] = version;
      } else {
        log.Append(Make(key, it->second, 0));
        present.erase(it);
      }
    }
    wire::Delta whole;
    const size_t n = *log.Take(1, 1000, &whole);
    Replica once;
    once.Apply(whole, n);
    for (int round = 0; round < 20; ++round) {
      Replica twice;
      uint64_t at = 1;
      while (at <= n) {  // pieces, each sent again from some earlier place as after a reconnect
        const uint64_t from = 1 + random() % at;
        wire::Delta piece;
        const size_t got = *log.Take(from, at - from + 1 + random() % 50, &piece);
        twice.Apply(piece, got);
        at = std::max(at, from + got);
      }
      ASSERT_EQ(twice.state(), once.state());
    }
    // And it is the truth.
    size_t held = 0;
    for (const auto& [id, entry] : once.state()) {
      if (entry.second == 0) continue;
      ++held;
      EXPECT_EQ(present.at(id.bytes[0]), entry.first);
    }
    EXPECT_EQ(held, present.size());
  }
}

}  // namespace
}  // namespace cistern::store
