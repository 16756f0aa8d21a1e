// A store as the master sees one: what it holds, its record log, its obedience to Evict.
#ifndef CISTERN_TESTS_SIMULATION_SIM_STORE_H_
#define CISTERN_TESTS_SIMULATION_SIM_STORE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "proto/store.pb.h"

namespace cistern::simulation {

// A faithful small model: one DRAM segment with superblock and header table, extents of whole
// 4 KiB, state-based records with sequence numbers, a bounded log, versions that never run
// backwards over restarts. Chunks are of one namespace. Extents do not fragment.
class SimStore {
 public:
  struct Options {
    StoreId id;
    std::string name;
    uint64_t segment_bytes = 0;
    uint64_t expected_chunk_bytes = 64 << 10;
    size_t log_records = 1'000'000;
    wire::NamespaceInfo ns;
  };
  struct Chunk {
    Version version;
    uint32_t length = 0;
  };

  explicit SimStore(const Options& options);

  // Commits what is absent and fits, the last one first, as a put batch does. Appends to `refused`
  // what found no room.
  void PutBatch(const std::vector<ChunkName>& chunks, uint32_t length,
                std::vector<ChunkName>* refused);
  // Frees the oldest until `bytes` are free: a store that must.
  void EvictSelf(uint64_t bytes);
  // Obeys the master. Ignores lower epochs than seen.
  void Evict(const wire::Evict& evict);
  bool Has(const ChunkName& chunk) const { return chunks_.contains(chunk); }
  // Was it ever reported or put here?
  bool EverHeld(const ChunkName& chunk) const { return ever_.contains(chunk); }
  const absl::flat_hash_map<ChunkName, Chunk>& chunks() const { return chunks_; }

  // Another process on the same segment, which keeps its chunks or has lost them.
  void Restart(bool keep_chunks, uint64_t incarnation);
  void SeeEpoch(uint64_t epoch) { highest_epoch_ = std::max(highest_epoch_, epoch); }

  // --- What its session sends.
  wire::SessionHello Hello(const PoolId& pool) const;
  // Records from `seq` on, at most `max`. False when the log does not reach back so far.
  bool FillDelta(uint64_t seq, size_t max, wire::Delta* out) const;
  wire::Heartbeat MakeHeartbeat() const;
  // The whole content now, in pages.
  std::vector<wire::StoreMessage> MakeSnapshot(uint64_t snapshot_id, size_t page_records) const;
  void Ack(uint64_t seq);
  void NewSession() { acked_command_ = 0; }  // commands are numbered per session

  const StoreId& id() const { return options_.id; }
  const std::string& name() const { return options_.name; }
  uint64_t log_next() const { return log_first_ + log_.size(); }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  double fill() const {
    return static_cast<double>(used_bytes_) / static_cast<double>(capacity_bytes_);
  }
  uint64_t commanded_evictions() const { return commanded_evictions_; }
  uint64_t self_evictions() const { return self_evictions_; }

 private:
  struct LogRecord {
    ChunkName name;
    Version version;
    uint32_t length = 0;
    uint8_t tiers = 0;
    uint8_t cause = 0;
  };
  void Append(const LogRecord& record);
  void Drop(const ChunkName& chunk, wire::Cause cause);
  static void FillColumns(const std::vector<LogRecord>& records, wire::Delta* out);

  const Options options_;
  uint64_t capacity_bytes_ = 0;
  uint64_t header_count_ = 0;
  uint64_t used_bytes_ = 0;
  absl::flat_hash_map<ChunkName, Chunk> chunks_;
  std::map<uint64_t, ChunkName> by_version_;
  absl::flat_hash_set<ChunkName> ever_;
  uint64_t next_version_ = 1;
  uint64_t incarnation_ = 1;
  uint64_t highest_epoch_ = 0;
  uint64_t acked_command_ = 0;
  std::deque<LogRecord> log_;
  uint64_t log_first_ = 1;
  uint64_t commanded_evictions_ = 0;
  uint64_t self_evictions_ = 0;
};

}  // namespace cistern::simulation

#endif  // CISTERN_TESTS_SIMULATION_SIM_STORE_H_
