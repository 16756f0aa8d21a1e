// The master's small durable state, behind an interface: namespaces and the epoch.
#ifndef CISTERN_MASTER_STATE_STORE_H_
#define CISTERN_MASTER_STATE_STORE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "proto/types.pb.h"

namespace cistern::master {

// What a master finds when it starts.
struct DurableState {
  Epoch epoch;  // 0 = never ran
  std::vector<wire::NamespaceInfo> namespaces;
};

// Promise: what is saved before a Load is in it, in the order of the calls.
// Role: the functional core calls it, at most once per namespace opened or removed and per change
// of epoch, while the shell holds the core's lock. So an implementation only queues (or writes
// without waiting for the disk); the shell makes the queue durable outside the lock before it sends
// the reply that depends on it.
// Thread-safety: called by one thread at a time.
class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual absl::StatusOr<DurableState> Load() = 0;
  // Adds or replaces the namespace with info.id().
  virtual absl::Status SaveNamespace(const wire::NamespaceInfo& info) = 0;
  virtual absl::Status RemoveNamespace(const NamespaceId& id) = 0;
  virtual absl::Status SaveEpoch(Epoch epoch) = 0;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_STATE_STORE_H_
