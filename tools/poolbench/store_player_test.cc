#include "tools/poolbench/store_player.h"

#include <cstring>
#include <set>

#include "base/columns.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

StorePlayer::Options SomeOptions() {
  StorePlayer::Options options;
  options.number = 3;
  options.store_id.bytes[0] = 7;
  options.capacity_bytes = uint64_t{1} << 30;
  options.chunk_bytes = 65536;
  options.ns.set_name("n");
  return options;
}

uint64_t U64At(const std::string& column, size_t i) {
  uint64_t value;
  std::memcpy(&value, column.data() + 8 * i, 8);
  return value;
}

wire::Evict EvictOf(const std::vector<PlayedChunk>& chunks, uint64_t version_shift = 0) {
  wire::Evict evict;
  evict.set_command(5);
  evict.set_cause(wire::CAUSE_EVICT_WATERMARK);
  ColumnWriter<uint64_t> versions(evict.mutable_versions(), chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    evict.mutable_ids()->append(PlayedId(chunks[i].store, chunks[i].number).view());
    versions.Set(i, chunks[i].number + 1 + version_shift);
  }
  return evict;
}

TEST(PlayedIdTest, GoesThereAndBackAndNamesOneChunk) {
  std::set<KeyId> seen;
  for (const uint64_t store : {0, 1, 15, 65535}) {
    for (const uint64_t number : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 48) - 1}) {
      const KeyId id = PlayedId(store, number);
      EXPECT_TRUE(seen.insert(id).second);
      const auto chunk = ChunkOfId(id);
      ASSERT_TRUE(chunk.has_value());
      EXPECT_EQ(chunk->store, store);
      EXPECT_EQ(chunk->number, number);
    }
  }
  KeyId other = PlayedId(1, 1);
  other.bytes[15] ^= 1;
  EXPECT_FALSE(ChunkOfId(other).has_value());
}

TEST(StorePlayerTest, ReportsAChainLastChunkFirst) {
  StorePlayer player(SomeOptions());
  const wire::StoreMessage message = player.Commit(66);  // a chain of 64 and one of 2
  const wire::Delta& delta = message.delta();
  EXPECT_EQ(delta.seq_first(), 0u);
  ASSERT_EQ(delta.ids().size(), 66u * 16);
  EXPECT_EQ(U64At(delta.versions(), 0), 64u);
  EXPECT_EQ(U64At(delta.versions(), 63), 1u);
  EXPECT_EQ(U64At(delta.versions(), 64), 66u);
  EXPECT_EQ(U64At(delta.versions(), 65), 65u);
  EXPECT_EQ(KeyId::FromBytes(delta.ids().data()), PlayedId(3, 63));
  EXPECT_EQ(delta.lengths().size(), 66u * 4);
  EXPECT_EQ(player.Commit(1).delta().seq_first(), 66u);
  EXPECT_EQ(player.held(), 67u);
}

TEST(StorePlayerTest, FreesExactlyWhatItIsToldTo) {
  StorePlayer player(SomeOptions());
  player.Commit(10);
  // Its own 4 and 5; one of another store, one that it never had.
  const auto message = player.OnEvict(EvictOf({{3, 4}, {2, 6}, {3, 5}, {3, 99}}));
  ASSERT_TRUE(message.has_value());
  const wire::Delta& delta = message->delta();
  EXPECT_EQ(delta.seq_first(), 10u);
  ASSERT_EQ(delta.ids().size(), 2u * 16);
  EXPECT_EQ(KeyId::FromBytes(delta.ids().data() + 16), PlayedId(3, 5));
  EXPECT_EQ(delta.tiers(), std::string(2, '\0'));
  EXPECT_EQ(player.held(), 8u);
  EXPECT_EQ(player.evicted(), 2u);
  EXPECT_FALSE(player.Holds(4));
  EXPECT_EQ(player.Heartbeat().heartbeat().acked_command(), 5u);
  EXPECT_EQ(player.Heartbeat().heartbeat().record_seq(), 12u);
  // Gone already; another version.
  EXPECT_FALSE(player.OnEvict(EvictOf({{3, 4}})).has_value());
  EXPECT_FALSE(player.OnEvict(EvictOf({{3, 6}}, 1)).has_value());
  EXPECT_TRUE(player.Holds(6));
}

TEST(StorePlayerTest, IgnoresACommandThatCannotBeRead) {
  StorePlayer player(SomeOptions());
  player.Commit(2);
  wire::Evict evict = EvictOf({{3, 0}});
  evict.mutable_versions()->pop_back();
  EXPECT_FALSE(player.OnEvict(evict).has_value());
  evict = EvictOf({{3, 0}});
  evict.mutable_ids()->pop_back();
  EXPECT_FALSE(player.OnEvict(evict).has_value());
  EXPECT_EQ(player.held(), 2u);
}

TEST(StorePlayerTest, ASnapshotHoldsWhatIsThereInPages) {
  StorePlayer player(SomeOptions());
  for (int i = 0; i < 5; ++i) player.Commit(4096);
  player.OnEvict(EvictOf({{3, 1}}));
  std::vector<wire::StoreMessage> messages;
  player.Snapshot([&](const wire::StoreMessage& message) { messages.push_back(message); });
  // Begin, a full page, one with the rest, end.
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].snapshot_begin().seq(), 20481u);
  EXPECT_EQ(messages[1].snapshot_page().records().ids().size(), 16384u * 16);
  EXPECT_EQ(messages[2].snapshot_page().records().ids().size(), 4095u * 16);
  EXPECT_EQ(messages[3].snapshot_end().count(), 20479u);
  KeyId sum;
  for (const wire::StoreMessage& message : messages) {
    const std::string& ids = message.snapshot_page().records().ids();
    for (size_t i = 0; i < ids.size(); ++i) sum.bytes[i % 16] ^= static_cast<uint8_t>(ids[i]);
  }
  EXPECT_EQ(messages[3].snapshot_end().xor_of_ids(), sum.view());
}

TEST(StorePlayerTest, ARestartFindsTheOldestAgainUnderANewIncarnation) {
  StorePlayer player(SomeOptions());
  player.Commit(100);
  player.OnEvict(EvictOf({{3, 0}, {3, 2}}));
  const uint64_t before = player.Hello(PoolId(), 9).incarnation();
  player.Restart(3);
  EXPECT_EQ(player.held(), 3u);
  EXPECT_TRUE(player.Holds(1) && player.Holds(3) && player.Holds(4));
  EXPECT_FALSE(player.Holds(5));
  EXPECT_NE(player.Hello(PoolId(), 9).incarnation(), before);
  EXPECT_EQ(player.Hello(PoolId(), 9).highest_epoch(), 9u);
  EXPECT_EQ(player.Hello(PoolId(), 9).log_next(), 0u);
  // What comes next has a number of its own.
  EXPECT_EQ(KeyId::FromBytes(player.Commit(1).delta().ids().data()), PlayedId(3, 100));
}

}  // namespace
}  // namespace cistern::poolbench
