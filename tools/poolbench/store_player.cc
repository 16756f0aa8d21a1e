#include "tools/poolbench/store_player.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/columns.h"
#include "base/status.h"
#include "tools/replay/random.h"

namespace cistern::poolbench {
namespace {

constexpr int kNumberBits = 48;

// The inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the right
// bits.
constexpr uint64_t Inverse(uint64_t odd) {
  uint64_t inverse = odd;  // right in the lowest 3 bits
  for (int i = 0; i < 5; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}

// replay::Mix64 backwards.
constexpr uint64_t Unmix64(uint64_t x) {
  x ^= x >> 31 ^ x >> 62;
  x *= Inverse(0x94D049BB133111EB);
  x ^= x >> 27 ^ x >> 54;
  x *= Inverse(0xBF58476D1CE4E5B9);
  return x ^ x >> 30 ^ x >> 60;
}
static_assert(Unmix64(replay::Mix64(0x0123456789ABCDEF)) == 0x0123456789ABCDEF);

template <typename T>
void Append(std::string* column, T value) {
  column->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

KeyId PlayedId(uint64_t store, uint64_t number) {
  const uint64_t x = store << kNumberBits | number;
  const uint64_t words[2] = {replay::Mix64(x), replay::Mix64(x + replay::kGoldenGamma)};
  return KeyId::FromBytes(words);
}

std::optional<PlayedChunk> ChunkOfId(const KeyId& id) {
  const uint64_t x = Unmix64(id.word(0));
  const PlayedChunk chunk{x >> kNumberBits, x & ((uint64_t{1} << kNumberBits) - 1)};
  if (PlayedId(chunk.store, chunk.number) != id) return std::nullopt;
  return chunk;
}

bool StorePlayer::Holds(uint64_t number) const { return number < holds_.size() && holds_[number]; }

wire::SessionHello StorePlayer::Hello(const PoolId& pool_id, uint64_t highest_epoch) const {
  wire::SessionHello hello;
  hello.set_pool_id(std::string(pool_id.view()));
  hello.set_store_id(std::string(options_.store_id.view()));
  hello.set_incarnation(incarnation_);
  hello.set_highest_epoch(highest_epoch);
  hello.set_name(absl::StrCat("played-", options_.number));
  hello.set_software_version("poolbench");
  wire::SegmentInfo* segment = hello.add_segments();
  segment->set_segment_id(std::string(options_.store_id.view()));
  segment->set_tier(wire::TIER_DRAM);
  segment->set_bytes(options_.capacity_bytes);
  segment->set_allocatable_bytes(options_.capacity_bytes);
  segment->set_header_count(2 * options_.capacity_bytes / options_.chunk_bytes);
  // Nobody listens there: no chunk is ever got.
  wire::Endpoint* endpoint = hello.add_endpoints();
  endpoint->set_host("127.0.0.1");
  endpoint->set_port(1);
  *hello.add_namespaces() = options_.ns;
  hello.set_log_first(next_seq_);
  hello.set_log_next(next_seq_);
  return hello;
}

void StorePlayer::Record(wire::Delta* delta, uint64_t number, uint8_t tiers) const {
  delta->mutable_ids()->append(PlayedId(options_.number, number).view());
  Append<uint64_t>(delta->mutable_versions(), number + 1);
  Append<uint32_t>(delta->mutable_lengths(), options_.chunk_bytes);
  delta->mutable_tiers()->push_back(static_cast<char>(tiers));
}

wire::StoreMessage StorePlayer::Commit(uint64_t count) {
  CISTERN_CHECK(count <= kMaxRecords);
  wire::StoreMessage message;
  wire::Delta* delta = message.mutable_delta();
  delta->set_seq_first(next_seq_);
  for (uint64_t done = 0; done < count; done += kChain) {
    const uint64_t n = std::min(kChain, count - done);
    for (uint64_t i = n; i-- > 0;) Record(delta, next_ + done + i, wire::TIER_DRAM);
  }
  ColumnWriter<uint32_t>(delta->mutable_namespaces(), 1).Set(0, 0);
  ColumnWriter<uint8_t>(delta->mutable_causes(), 1).Set(0, wire::CAUSE_PUT);
  next_seq_ += count;
  next_ += count;
  held_ += count;
  holds_.resize(next_, true);
  return message;
}

std::optional<wire::StoreMessage> StorePlayer::OnEvict(const wire::Evict& evict) {
  acked_command_ = std::max(acked_command_, evict.command());
  const auto ids = KeyColumn::Parse(evict.ids());
  if (!ids.ok()) return std::nullopt;
  const auto versions =
      Column<uint64_t>::Parse(evict.versions(), ids->size(), "versions", false, false);
  if (!versions.ok()) return std::nullopt;
  wire::StoreMessage message;
  wire::Delta* delta = message.mutable_delta();
  delta->set_seq_first(next_seq_);
  for (size_t i = 0; i < ids->size(); ++i) {
    const std::optional<PlayedChunk> chunk = ChunkOfId((*ids)[i]);
    if (!chunk.has_value() || chunk->store != options_.number || !Holds(chunk->number) ||
        (*versions)[i] != chunk->number + 1) {
      continue;
    }
    holds_[chunk->number] = false;
    Record(delta, chunk->number, wire::TIER_NONE);
  }
  const uint64_t gone = delta->tiers().size();
  if (gone == 0) return std::nullopt;
  ColumnWriter<uint32_t>(delta->mutable_namespaces(), 1).Set(0, 0);
  ColumnWriter<uint8_t>(delta->mutable_causes(), 1).Set(0, static_cast<uint8_t>(evict.cause()));
  next_seq_ += gone;
  held_ -= gone;
  evicted_ += gone;
  return message;
}

wire::StoreMessage StorePlayer::Heartbeat() const {
  wire::StoreMessage message;
  wire::Heartbeat* heartbeat = message.mutable_heartbeat();
  wire::TierUsage* tier = heartbeat->add_tiers();
  const uint64_t bytes = held_ * options_.chunk_bytes;
  tier->set_tier(wire::TIER_DRAM);
  tier->set_capacity_bytes(options_.capacity_bytes);
  tier->set_used_bytes(bytes);
  tier->set_committed_bytes(bytes);
  tier->set_payload_bytes(bytes);
  tier->set_chunk_count(held_);
  tier->set_header_count(2 * options_.capacity_bytes / options_.chunk_bytes);
  tier->set_headers_used(held_);
  heartbeat->set_record_seq(next_seq_);
  heartbeat->set_acked_command(acked_command_);
  return message;
}

void StorePlayer::Snapshot(const std::function<void(const wire::StoreMessage&)>& send) const {
  wire::StoreMessage message;
  message.mutable_snapshot_begin()->set_snapshot_id(incarnation_);
  message.mutable_snapshot_begin()->set_seq(next_seq_);
  send(message);
  KeyId sum;
  uint64_t in_page = 0;
  const auto flush = [&] {
    if (std::exchange(in_page, 0) == 0) return;
    wire::SnapshotPage* page = message.mutable_snapshot_page();
    page->set_snapshot_id(incarnation_);
    ColumnWriter<uint32_t>(page->mutable_records()->mutable_namespaces(), 1).Set(0, 0);
    send(message);
    message.Clear();
  };
  message.Clear();
  for (uint64_t number = 0; number < next_; ++number) {
    if (!holds_[number]) continue;
    Record(message.mutable_snapshot_page()->mutable_records(), number, wire::TIER_DRAM);
    const KeyId id = PlayedId(options_.number, number);
    for (size_t b = 0; b < KeyId::kBytes; ++b) sum.bytes[b] ^= id.bytes[b];
    if (++in_page == kPageRecords) flush();
  }
  flush();
  message.Clear();
  wire::SnapshotEnd* end = message.mutable_snapshot_end();
  end->set_snapshot_id(incarnation_);
  end->set_count(held_);
  end->set_xor_of_ids(std::string(sum.view()));
  send(message);
}

void StorePlayer::Restart(uint64_t keep) {
  ++incarnation_;
  next_seq_ = 0;
  acked_command_ = 0;
  held_ = 0;
  for (uint64_t number = 0; number < next_; ++number) {
    holds_[number] = holds_[number] && held_ < keep;
    held_ += holds_[number] ? 1 : 0;
  }
}

}  // namespace cistern::poolbench
