// Removals that wait for the stores' records.
#ifndef CISTERN_MASTER_REMOVAL_TABLE_H_
#define CISTERN_MASTER_REMOVAL_TABLE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "master/calls.h"
#include "master/types.h"
#include "proto/master.pb.h"

namespace cistern::master {

// One removal from its request to its answer. Never moves: the call borrows request and reply.
struct Removal {
  // `complete`: every store has reported; else the deadline came first.
  using Done = absl::AnyInvocable<void(absl::Status, wire::RemoveReply&, bool complete)>;

  Removal(wire::RemoveRequest r, MonoTime until, Done d)
      : request(std::move(r)), call(request, &reply), deadline(until), done(std::move(d)) {}
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  wire::RemoveRequest request;
  wire::RemoveReply reply;
  RemoveCall call;
  MonoTime deadline;
  // Runs exactly once, without a lock held. OK: `reply` is the outcome, as far as it is known.
  Done done;
  // True when nobody waits for the answer any more (may be null: somebody always does).
  absl::AnyInvocable<bool()> abandoned;
};

// Promise: each removal leaves the table once. Bounded. Role: CoreDriver keeps it beside the core.
// Thread-safety: none.
class RemovalTable {
 public:
  using Removals = std::vector<std::unique_ptr<Removal>>;

  explicit RemovalTable(size_t max_removals) : max_removals_(max_removals) {}

  size_t size() const { return waiting_.size() + blocked_.size(); }
  bool full() const { return size() >= max_removals_; }
  // Waits for the stores' records.
  void AddWaiting(RemovalTicket ticket, std::unique_ptr<Removal> removal);
  // Its call cannot be stepped for now (RemoveCall::blocked).
  void AddBlocked(std::unique_ptr<Removal> removal);

  // Null when it is not there (any more).
  std::unique_ptr<Removal> TakeWaiting(RemovalTicket ticket);
  // Those whose deadline has come or that nobody waits for.
  Removals TakeExpired(MonoTime now);
  // All that are blocked.
  Removals TakeBlocked();

 private:
  const size_t max_removals_;
  absl::flat_hash_map<RemovalTicket, std::unique_ptr<Removal>> waiting_;
  Removals blocked_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_REMOVAL_TABLE_H_
