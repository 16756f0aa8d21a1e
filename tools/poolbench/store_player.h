// A store that holds nothing: what it would say to its master, for chunks whose ids are numbers.
#ifndef CISTERN_TOOLS_POOLBENCH_STORE_PLAYER_H_
#define CISTERN_TOOLS_POOLBENCH_STORE_PLAYER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "proto/store.pb.h"

namespace cistern::poolbench {

// The name of chunk `number` of store `store` (below 2^16; number below 2^48): looks like a hash,
// and can be turned back.
KeyId PlayedId(uint64_t store, uint64_t number);
struct PlayedChunk {
  uint64_t store = 0;
  uint64_t number = 0;
};
// Nothing where the id is none of PlayedId's.
std::optional<PlayedChunk> ChunkOfId(const KeyId& id);

// Promise: says of each chunk what a real store would (a record when it comes, one when the master
// has had it evicted, a snapshot when asked), at a bit of memory a chunk. Chunk n has version n + 1
// for good. Role: PlayedSession sends what this makes. Thread-safety: none.
class StorePlayer {
 public:
  static constexpr uint64_t kChain = 64;           // chunks of one put, the last reported first
  static constexpr uint64_t kMaxRecords = 4096;    // of a delta
  static constexpr uint64_t kPageRecords = 16384;  // of a snapshot's page

  struct Options {
    uint64_t number = 0;  // of the store
    StoreId store_id;
    uint64_t capacity_bytes = 0;
    uint32_t chunk_bytes = 64 << 10;
    wire::NamespaceInfo ns;  // what all chunks belong to
  };
  explicit StorePlayer(Options options) : options_(std::move(options)) {}

  wire::SessionHello Hello(const PoolId& pool_id, uint64_t highest_epoch) const;
  // The next `count` chunks (at most kMaxRecords) are there from now on: the record of it.
  wire::StoreMessage Commit(uint64_t count);
  // Frees those that it holds at the version named: the record of it, if there are any.
  std::optional<wire::StoreMessage> OnEvict(const wire::Evict& evict);
  wire::StoreMessage Heartbeat() const;
  // Everything that it holds, message by message.
  void Snapshot(const std::function<void(const wire::StoreMessage&)>& send) const;
  // Another process of the same store, which found only the `keep` oldest chunks again.
  void Restart(uint64_t keep);

  const Options& options() const { return options_; }
  uint64_t held() const { return held_; }
  uint64_t committed() const { return next_; }  // ever
  uint64_t evicted() const { return evicted_; }
  bool Holds(uint64_t number) const;

 private:
  void Record(wire::Delta* delta, uint64_t number, uint8_t tiers) const;

  const Options options_;
  uint64_t incarnation_ = 1;
  uint64_t next_ = 0;      // number of the next chunk
  uint64_t next_seq_ = 0;  // of the next record
  uint64_t held_ = 0;
  uint64_t evicted_ = 0;
  uint64_t acked_command_ = 0;
  std::vector<bool> holds_;
};

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_STORE_PLAYER_H_
