// Removals that wait for the stores' records.
#ifndef CISTERN_MASTER_REMOVALS_H_
#define CISTERN_MASTER_REMOVALS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/ids.h"
#include "master/types.h"

namespace cistern::master {

// Promise: a ticket is finished once it is sealed and every replica it waits for was reported gone
// or its store was lost. Bounded: see kMaxWaits.
// Role: RemoveCall begins, waits and seals; the record appliers report. Thread-safety: none.
class RemovalTracker {
 public:
  // Replicas waited for at once, by all tickets; callers come back later when it is reached.
  static constexpr size_t kMaxWaits = 1 << 18;

  RemovalTicket Begin();
  bool full() const { return waits_.size() >= kMaxWaits; }
  // The ticket waits for the replica with this version in this store.
  void Wait(RemovalTicket ticket, StoreIndex store, Version version);
  // No more waits will be added: from now on the ticket can finish.
  void Seal(RemovalTicket ticket);
  // The replica is gone.
  void Reported(StoreIndex store, Version version);
  // Nothing more will be heard from commands to this store (its session ended).
  void StoreLost(StoreIndex store);
  // Nobody waits any more.
  void Forget(RemovalTicket ticket);
  // How many replicas a ticket still waits for.
  uint64_t waiting(RemovalTicket ticket) const;
  // Finished since the last call; forgotten here.
  std::vector<RemovalTicket> TakeFinished();
  size_t open() const { return tickets_.size(); }

 private:
  struct ReplicaName {
    StoreIndex store;
    Version version;
    friend bool operator==(const ReplicaName&, const ReplicaName&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const ReplicaName& n) {
      return H::combine(std::move(h), n.store, n.version);
    }
  };
  struct Ticket {
    uint64_t waiting = 0;
    bool sealed = false;
  };
  void CountDown(RemovalTicket ticket);
  void FinishIfDone(RemovalTicket ticket, const Ticket& state);

  uint64_t next_ = 1;
  absl::flat_hash_map<RemovalTicket, Ticket> tickets_;
  absl::flat_hash_map<ReplicaName, absl::InlinedVector<RemovalTicket, 1>> waits_;
  std::vector<RemovalTicket> finished_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_REMOVALS_H_
