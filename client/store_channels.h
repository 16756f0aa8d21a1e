// By which wire each store is reached, and why.
//
// Shared memory is tried where the store says that it is on this host (its boot id is ours) and
// has a socket; TCP otherwise, and where shared memory does not answer or does not let us in.
#ifndef CISTERN_CLIENT_STORE_CHANNELS_H_
#define CISTERN_CLIENT_STORE_CHANNELS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/client.h"
#include "client/store_table.h"
#include "transport/channel.h"
#include "transport/identity.h"
#include "transport/io_context.h"
#include "transport/shm/lent_memory.h"

namespace cistern {

// Thread-safe. Outlives the channels it made.
class StoreChannels {
 public:
  StoreChannels(transport::IoContext* io, Wire wire, int connections,
                const transport::LocalIdentity& identity,
                std::shared_ptr<transport::LentMemory> lent, Clock* clock)
      : io_(*io),
        wire_(wire),
        connections_(connections),
        identity_(identity),
        lent_(std::move(lent)),
        clock_(*clock) {}

  // Makes no connection. Unavailable: the wire was forced and does not lead there; says why.
  absl::StatusOr<std::unique_ptr<transport::Channel>> Make(const StoreTable::Endpoint& endpoint);

  // OK where a forced wire leads to the store.
  absl::Status CheckForced(const StoreTable::Endpoint& endpoint) const;

  // What Make and the stores' answers came to, in no order.
  std::vector<StoreWire> Wires() const;

 private:
  // Why shared memory is out of the question; OK if it is not.
  absl::Status ShmPossible(const StoreTable::Endpoint& endpoint) const;
  std::unique_ptr<transport::Channel> MakeTcp(const StoreTable::Endpoint& endpoint);
  std::unique_ptr<transport::Channel> MakeShm(const StoreTable::Endpoint& endpoint,
                                              absl::Duration connect_timeout);
  void Note(const StoreTable::Endpoint& endpoint, std::string wire, std::string why);

  transport::IoContext& io_;
  const Wire wire_;
  const int connections_;
  const transport::LocalIdentity identity_;
  const std::shared_ptr<transport::LentMemory> lent_;
  Clock& clock_;
  mutable Mutex mutex_;
  absl::flat_hash_map<StoreId, StoreWire> wires_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_STORE_CHANNELS_H_
