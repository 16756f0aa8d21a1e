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
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/columns.h"
#include "base/ids.h"
#include "master/lease_table.h"
#include "master/types.h"
#include "proto/master.pb.h"

namespace cistern::master {

class MasterCore;

// Which chunks a request names: keys x shards, key-major. Shared by the calls below.
class ChunkBatch {
 public:
  absl::Status Parse(std::string_view ids, uint32_t shard_first, uint32_t shard_count);
  size_t keys() const { return ids_.size(); }
  size_t chunks() const { return ids_.size() * shard_count_; }
  uint32_t shard_count() const { return shard_count_; }
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
  void Start(MasterCore& core, MonoTime now);
  void LookupSlice(MasterCore& core, size_t begin, size_t end, MonoTime now);
  bool LookupKey(MasterCore& core, size_t key, const EntryIndex* entries, MonoTime now);
  void PutReplicas(MasterCore& core, size_t chunk, EntryIndex entry);
  void LeaseKey(MasterCore& core, const EntryIndex* entries, MonoTime now);
  void Finish(MasterCore& core);

  const wire::LookupRequest& request_;
  wire::LookupReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  NamespaceIndex ns_;
  size_t next_key_ = 0;
  uint64_t hits_ = 0;
  bool started_ = false;
  bool run_open_ = true;     // no key missed so far
  bool lease_open_ = false;  // the share has allowed everything so far
  uint32_t lease_ms_ = 0;
  LeaseTable::Handle lease_;
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
  NamespaceIndex ns_;
  size_t next_key_ = 0;
  bool started_ = false;
};

// Lookup that also says where what is absent shall go. In two passes over the batch: what is there,
// then a place for each chunk that is not. May queue Evict commands to the chosen stores.
class PlaceCall {
 public:
  PlaceCall(const wire::PlaceRequest& request, wire::PlaceReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }

 private:
  void Start(MasterCore& core);
  void FindSlice(MasterCore& core, MonoTime now);
  void Decide(MasterCore& core, MonoTime now);
  void AssignSlice(MasterCore& core, MonoTime now);
  void Refuse(size_t chunk, std::string_view why);

  const wire::PlaceRequest& request_;
  wire::PlaceReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  Column<uint32_t> lengths_;
  OperationId operation_;
  BootId host_;
  NamespaceIndex ns_;
  bool started_ = false;
  bool decided_ = false;
  size_t next_find_ = 0;
  size_t next_assign_ = 0;
  size_t present_ = 0;
  StoreIndex ancestor_{StoreIndex::kNone};
  bool ancestor_open_ = true;
  uint64_t absent_bytes_ = 0;
  // The chosen stores, in order, with how many bytes of the absent run each takes.
  struct Run {
    StoreIndex store;
    uint64_t bytes_left;
  };
  std::vector<Run> runs_;
  size_t run_ = 0;
};

// Removal by key. Step queues the commands; then the reply holds every chunk that needs no waiting
// and ticket() names what the stores still have to report: see MasterCore::FinishRemoval.
class RemoveCall {
 public:
  RemoveCall(const wire::RemoveRequest& request, wire::RemoveReply* reply)
      : request_(request), reply_(*reply) {}
  absl::Status Prepare();
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }
  // Value 0: nothing to wait for.
  RemovalTicket ticket() const { return ticket_; }
  // Writes the outcome of the chunks that were waited for. `done` is false at the deadline.
  void Finish(bool done);

 private:
  bool StepAll(MasterCore& core, MonoTime now);

  const wire::RemoveRequest& request_;
  wire::RemoveReply& reply_;
  absl::Status status_;
  ChunkBatch batch_;
  NamespaceIndex ns_;
  RemovalTicket ticket_;
  size_t next_chunk_ = 0;
  uint32_t next_entry_ = 0;  // removal of a whole namespace
  uint64_t waiting_ = 0;
  bool started_ = false;
  std::vector<bool> waits_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_CALLS_H_
