// The clients' batch calls, cut into slices.
//
// Each is used the same way; `core` is guarded by the shell's lock, the call object is the shell's:
//
//   LookupCall call(request, &reply);           // borrows both until it is destroyed
//   if (absl::Status s = call.Prepare(); !s.ok()) return s;   // checks; needs no lock
//   while (true) {
//     MutexLock lock(mutex);
//     if (call.Step(core, now)) break;          // at most kSliceKeys chunks a step
//   }
//
// Step returns true when the call is over; then status() is its result (the reply is filled only
// when it is OK). Errors: InvalidArgument for what the sender did wrong.
#ifndef CISTERN_MASTER_CALLS_H_
#define CISTERN_MASTER_CALLS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/ids.h"
#include "master/admin_views.h"
#include "master/evictor.h"
#include "master/lease_table.h"
#include "master/placement.h"
#include "master/types.h"
#include "proto/master.pb.h"

namespace cistern::master {

class MasterCore;
struct PoolState;

// Which chunks a request names: keys x shards, key-major. Shared by the calls below.
class ChunkBatch {
 public:
  static constexpr size_t kMaxChunksPerRequest = 8 * kMaxKeysPerRequest;
  absl::Status Parse(std::string_view ids, uint32_t shard_first, uint32_t shard_count);
  size_t keys() const { return ids_.size(); }
  size_t chunks() const { return ids_.size() * shard_count_; }
  uint32_t shard_count() const { return shard_count_; }
  // Fills ids and shards of chunks [begin, end).
  void Unpack(size_t begin, size_t end, std::vector<KeyId>* ids, std::vector<Shard>* shards) const;
  KeyId id(size_t chunk) const { return ids_[shard_count_ == 1 ? chunk : chunk / shard_count_]; }
  Shard shard(size_t chunk) const {
    return Shard(static_cast<uint16_t>(
        shard_first_ + (shard_count_ == 1 ? 0 : static_cast<uint32_t>(chunk % shard_count_))));
  }

 private:
  KeyColumn ids_;
  uint32_t shard_first_ = 0;
  uint32_t shard_count_ = 1;
};

// Where the index has the chunks of a slice. Buffers that one call uses for all its slices.
struct FoundSlice {
  std::vector<KeyId> ids;
  std::vector<Shard> shards;
  std::vector<EntryIndex> entries;
  // Looks chunks [begin, end) up; entries of other namespaces count as absent.
  void Find(const PoolState& pool, const ChunkBatch& batch, NamespaceIndex ns, size_t begin,
            size_t end);
};

// What every call does first. False when the call is over: the sender's map is stale (`reply_map`
// then has the new one) or `ns_ref` names nothing (`*status` says so).
bool BeginCall(const PoolState& pool, uint64_t map_version, uint32_t ns_ref,
               const std::function<wire::PartitionMap*()>& reply_map, NamespaceIndex* ns,
               absl::Status* status);

// Lookup for reading: marks what is present as touched and leases the leading run (or, when sparse,
// every present key) as far as the stores' lease share allows.
class LookupCall {
 public:
  LookupCall(const wire::LookupRequest& request, wire::LookupReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }

 private:
  // False: the call is over already.
  bool Start(PoolState& pool, MonoTime now);
  void LookupSlice(PoolState& pool, size_t begin_key, size_t end_key, MonoTime now);
  // Is the key there with all its shards? Writes their columns.
  bool LookupKey(PoolState& pool, size_t key, const EntryIndex* entries);
  bool LookupChunk(PoolState& pool, size_t chunk, EntryIndex entry);
  void PutSecondColumn(size_t chunk, StoreIndex store);
  void PutTiers(PoolState& pool, size_t chunk, TierMask tiers);
  void LeaseKey(PoolState& pool, const EntryIndex* entries, MonoTime now);
  void Finish(PoolState& pool);

  const wire::LookupRequest& request_;
  wire::LookupReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  FoundSlice slice_;
  NamespaceIndex ns_;
  size_t next_key_ = 0;
  uint64_t hits_ = 0;
  uint32_t leased_keys_ = 0;
  bool started_ = false;
  bool run_open_ = true;     // no key has missed so far
  bool lease_open_ = false;  // the share has allowed everything so far
  uint32_t lease_ms_ = 0;
  LeaseTable::Handle lease_;
  LeaseTable::Grant grant_;  // of this slice, as the next two
  uint32_t now_tick_ = 0;
  char* stores_ = nullptr;  // the reply's column
  std::vector<LeasedEntry> leased_;
  StoreIndex limit_store_{StoreIndex::kNone};  // whose share was worked out last
  uint64_t limit_bytes_ = 0;
};

// Which keys are there. Takes no lease and is no read.
class ExistsCall {
 public:
  ExistsCall(const wire::ExistsRequest& request, wire::ExistsReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }

 private:
  const wire::ExistsRequest& request_;
  wire::ExistsReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  FoundSlice slice_;
  NamespaceIndex ns_;
  size_t next_key_ = 0;
  bool started_ = false;
};

// Lookup that also says where what is absent shall go. In two passes over the batch: what is there,
// then a place for each chunk that is not. May queue Evict commands to the chosen stores, in steps
// of their own where there is much to look at.
class PlaceCall {
 public:
  PlaceCall(const wire::PlaceRequest& request, wire::PlaceReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }

 private:
  bool Start(PoolState& pool);
  void FindSlice(PoolState& pool, MonoTime now);
  bool SetPresent(PoolState& pool, size_t chunk, EntryIndex entry, MonoTime now);
  // Mutable namespaces: a chunk stays in the store that has it. False: none with a session has it.
  bool StayInStore(PoolState& pool, size_t chunk, EntryIndex entry, MonoTime now);
  void Decide(PoolState& pool, MonoTime now);
  void AssignSlice(PoolState& pool, MonoTime now);
  // False: not yet, the chosen store is making room; again in the next step.
  bool Assign(PoolState& pool, size_t chunk, MonoTime now);
  std::optional<StoreIndex> NextStore(PoolState& pool, uint64_t bytes, MonoTime now);
  // Has the run's store make room for `bytes`. Nothing: not known yet, again in the next step.
  std::optional<bool> MakeRoom(PoolState& pool, PlacementRun& run, uint64_t bytes, MonoTime now);
  // A step of bringing the chosen stores to their watermark. True when that is done.
  bool EvictStep(PoolState& pool, MonoTime now);
  StoreIndex RoomiestStore(PoolState& pool, uint64_t bytes);
  void Refuse(PoolState& pool, size_t chunk, PlaceRefusal reason, std::string_view why);
  void Finish(PoolState& pool, MonoTime now);
  void SetStore(size_t chunk, StoreIndex store);

  const wire::PlaceRequest& request_;
  wire::PlaceReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  FoundSlice slice_;
  Column<uint32_t> lengths_;
  OperationId operation_;
  BootId host_;
  NamespaceIndex ns_;
  bool mutable_ = false;
  std::vector<StoreIndex> staying_;  // stores that chunks stay in, each once
  bool started_ = false;
  bool decided_ = false;
  size_t next_find_ = 0;
  size_t next_assign_ = 0;
  size_t next_evict_ = 0;   // of runs_, then staying_
  bool evicts_ = false;     // a slice was assigned, and its stores were not looked at yet
  bool made_room_ = false;  // in this step
  uint64_t present_ = 0;
  StoreIndex ancestor_{StoreIndex::kNone};
  bool run_open_ = true;  // no chunk was absent so far
  uint64_t absent_bytes_ = 0;
  std::vector<PlacementRun> runs_;  // bytes count down
  size_t run_ = 0;
  uint64_t no_room_for_ = ~uint64_t{0};  // no store had room for so many bytes
};

// Removal, by key or of everything. Step queues the commands; when it is over ticket() names what
// the stores still have to report. The caller waits until TakeFinishedRemovals names it or the
// deadline comes, then calls FinishStep until it returns true.
//
// A put that was acknowledged before the call is removed, also when its record is not here yet:
// the stores that may know more are asked for their records first (a fence), all of them where
// everything is to go, and those that absent keys were placed in.
class RemoveCall {
 public:
  RemoveCall(const wire::RemoveRequest& request, wire::RemoveReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  // Step cannot go on before stores have reported: wait some milliseconds before the next.
  bool blocked() const { return blocked_; }
  const absl::Status& status() const { return status_; }
  // Value 0: nothing to wait for (FinishStep must be called all the same).
  RemovalTicket ticket() const { return ticket_; }
  // Writes the outcome of what was waited for. `in_time` is false at the deadline.
  bool FinishStep(MasterCore& core, bool in_time);

 private:
  bool Start(PoolState& pool);
  // What becomes of one chunk: a final status, or CHUNK_IN_PROGRESS when its stores were told.
  wire::ChunkStatus RemoveChunk(PoolState& pool, EntryIndex entry, MonoTime now);
  bool StepKeys(PoolState& pool, MonoTime now);
  // The keys that were absent but placed, once their stores have told all.
  bool StepLate(PoolState& pool, MonoTime now);
  bool StepAll(PoolState& pool, MonoTime now);
  void AddFence(PoolState& pool, SessionId session);
  // True when no fence is open any more; a session that has ended has nothing to tell.
  bool FencesPassed(PoolState& pool);
  void Flush(PoolState& pool);

  const wire::RemoveRequest& request_;
  wire::RemoveReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  FoundSlice slice_;
  NamespaceIndex ns_;
  RemovalTicket ticket_;
  std::optional<size_t> releases_;  // that came before us and are not worked off
  size_t next_chunk_ = 0;
  uint32_t next_entry_ = 0;
  size_t next_finish_ = 0;
  std::vector<uint32_t> late_;  // chunks
  size_t next_late_ = 0;
  struct OpenFence {
    SessionId session;
    uint64_t number = 0;
  };
  std::vector<OpenFence> fences_;
  uint64_t told_ = 0;
  bool started_ = false;
  bool blocked_ = false;
  bool away_ = false;  // a replica of the last chunk is in a store without a session
  // Victims of this step, by store, until they are queued as commands.
  struct StoreVictims {
    StoreIndex store;
    std::vector<Victim> victims;
  };
  std::vector<StoreVictims> batch_victims_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_CALLS_H_
