#include "tests/simulation/sim_store.h"

#include "base/columns.h"
#include "base/status.h"

namespace cistern::simulation {
namespace {

uint64_t ExtentBytes(uint32_t length) { return RoundUp(length, Extent::kAlignment); }

}  // namespace

SimStore::SimStore(const Options& options) : options_(options) {
  header_count_ = options.segment_bytes / options.expected_chunk_bytes;
  const uint64_t front = Extent::kAlignment + RoundUp(header_count_ * 128, Extent::kAlignment);
  CISTERN_CHECK(options.segment_bytes > front);
  capacity_bytes_ = options.segment_bytes - front;
}

void SimStore::Append(const LogRecord& record) {
  log_.push_back(record);
  while (log_.size() > options_.log_records) {
    log_.pop_front();
    ++log_first_;
  }
}

void SimStore::PutBatch(const std::vector<ChunkName>& chunks, uint32_t length,
                        std::vector<ChunkName>* refused) {
  std::vector<ChunkName> fits;
  uint64_t room = capacity_bytes_ - used_bytes_;
  uint64_t headers = header_count_ - chunks_.size();
  for (const ChunkName& chunk : chunks) {
    if (chunks_.contains(chunk)) continue;
    if (room < ExtentBytes(length) || headers == 0) {
      refused->push_back(chunk);
      continue;
    }
    room -= ExtentBytes(length);
    --headers;
    fits.push_back(chunk);
  }
  for (auto it = fits.rbegin(); it != fits.rend(); ++it) {
    const Version version(next_version_++);
    if (!chunks_.try_emplace(*it, Chunk{version, length}).second) continue;  // twice in the batch
    by_version_[version.value] = *it;
    ever_.insert(*it);
    used_bytes_ += ExtentBytes(length);
    Append({*it, version, length, wire::TIER_DRAM, wire::CAUSE_PUT});
  }
}

void SimStore::Drop(const ChunkName& name, wire::Cause cause) {
  auto it = chunks_.find(name);
  const Chunk chunk = it->second;
  chunks_.erase(it);
  by_version_.erase(chunk.version.value);
  used_bytes_ -= ExtentBytes(chunk.length);
  Append({name, chunk.version, chunk.length, wire::TIER_NONE, static_cast<uint8_t>(cause)});
}

void SimStore::EvictSelf(uint64_t bytes) {
  while (capacity_bytes_ - used_bytes_ < bytes && !by_version_.empty()) {
    Drop(by_version_.begin()->second, wire::CAUSE_EVICT_SELF);
    ++self_evictions_;
  }
}

void SimStore::Evict(const wire::Evict& evict) {
  if (evict.epoch() < highest_epoch_) return;
  highest_epoch_ = evict.epoch();
  acked_command_ = evict.command();
  const KeyColumn ids = *KeyColumn::Parse(evict.ids());
  const size_t n = ids.size();
  const auto shards = *Column<uint16_t>::Parse(evict.shards(), n, "shards", true, false);
  const auto versions = *Column<uint64_t>::Parse(evict.versions(), n, "versions", false, false);
  for (size_t i = 0; i < n; ++i) {
    const ChunkName name{ids[i], Shard(shards[i])};
    auto it = chunks_.find(name);
    if (it == chunks_.end() || it->second.version.value != versions[i]) continue;
    Drop(name, evict.cause());
    ++commanded_evictions_;
  }
}

void SimStore::Restart(bool keep_chunks, uint64_t incarnation) {
  incarnation_ = incarnation;
  log_.clear();
  log_first_ = 1;
  next_version_ += 1 << 20;  // the ceiling on disk
  if (keep_chunks) return;
  chunks_.clear();
  by_version_.clear();
  used_bytes_ = 0;
}

wire::SessionHello SimStore::Hello(const PoolId& pool) const {
  wire::SessionHello hello;
  hello.set_pool_id(pool.bytes.data(), pool.bytes.size());
  hello.set_store_id(options_.id.bytes.data(), options_.id.bytes.size());
  hello.set_incarnation(incarnation_);
  hello.set_highest_epoch(highest_epoch_);
  hello.set_name(options_.name);
  hello.set_log_first(log_first_);
  hello.set_log_next(log_next());
  *hello.add_namespaces() = options_.ns;
  wire::SegmentInfo& segment = *hello.add_segments();
  segment.set_tier(wire::TIER_DRAM);
  segment.set_bytes(options_.segment_bytes);
  segment.set_allocatable_bytes(capacity_bytes_);
  segment.set_header_count(header_count_);
  return hello;
}

void SimStore::FillColumns(const std::vector<LogRecord>& records, wire::Delta* out) {
  const size_t n = records.size();
  ColumnWriter<uint16_t> shards(out->mutable_shards(), n);
  ColumnWriter<uint64_t> versions(out->mutable_versions(), n);
  ColumnWriter<uint8_t> tiers(out->mutable_tiers(), n);
  ColumnWriter<uint32_t> lengths(out->mutable_lengths(), n);
  ColumnWriter<uint32_t> namespaces(out->mutable_namespaces(), n);
  ColumnWriter<uint8_t> causes(out->mutable_causes(), n);
  for (size_t i = 0; i < n; ++i) {
    out->mutable_ids()->append(records[i].name.id.view());
    shards.Set(i, records[i].name.shard.value);
    versions.Set(i, records[i].version.value);
    tiers.Set(i, records[i].tiers);
    lengths.Set(i, records[i].length);
    namespaces.Set(i, 0);
    causes.Set(i, records[i].cause);
  }
}

bool SimStore::FillDelta(uint64_t seq, size_t max, wire::Delta* out) const {
  if (seq < log_first_) return false;
  std::vector<LogRecord> records;
  for (uint64_t s = seq; s < log_next() && records.size() < max; ++s) {
    records.push_back(log_[s - log_first_]);
  }
  out->set_seq_first(seq);
  FillColumns(records, out);
  return true;
}

wire::Heartbeat SimStore::MakeHeartbeat() const {
  wire::Heartbeat heartbeat;
  wire::TierUsage& dram = *heartbeat.add_tiers();
  dram.set_tier(wire::TIER_DRAM);
  dram.set_capacity_bytes(capacity_bytes_);
  dram.set_used_bytes(used_bytes_);
  dram.set_committed_bytes(used_bytes_);
  dram.set_chunk_count(chunks_.size());
  dram.set_header_count(header_count_);
  dram.set_headers_used(chunks_.size());
  heartbeat.set_record_seq(log_next());
  heartbeat.set_acked_command(acked_command_);
  return heartbeat;
}

std::vector<wire::StoreMessage> SimStore::MakeSnapshot(uint64_t snapshot_id,
                                                       size_t page_records) const {
  std::vector<wire::StoreMessage> out;
  wire::SnapshotBegin& begin = *out.emplace_back().mutable_snapshot_begin();
  begin.set_snapshot_id(snapshot_id);
  begin.set_seq(log_next());
  KeyId xor_of_ids;
  std::vector<LogRecord> page;
  const auto flush = [&] {
    if (page.empty()) return;
    wire::SnapshotPage& message = *out.emplace_back().mutable_snapshot_page();
    message.set_snapshot_id(snapshot_id);
    FillColumns(page, message.mutable_records());
    page.clear();
  };
  for (const auto& [version, name] : by_version_) {
    for (size_t b = 0; b < KeyId::kBytes; ++b) xor_of_ids.bytes[b] ^= name.id.bytes[b];
    page.push_back(
        {name, Version(version), chunks_.at(name).length, wire::TIER_DRAM, wire::CAUSE_RECOVERED});
    if (page.size() == page_records) flush();
  }
  flush();
  wire::SnapshotEnd& end = *out.emplace_back().mutable_snapshot_end();
  end.set_snapshot_id(snapshot_id);
  end.set_count(chunks_.size());
  end.set_xor_of_ids(xor_of_ids.bytes.data(), xor_of_ids.bytes.size());
  return out;
}

void SimStore::Ack(uint64_t seq) {
  while (!log_.empty() && log_first_ < seq) {
    log_.pop_front();
    ++log_first_;
  }
}

}  // namespace cistern::simulation
