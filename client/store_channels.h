// By which wire each store is reached, and why.
//
// Shared memory is tried where the store says that it is on this host (its boot id is ours) and
// has a socket. RDMA where both ends have it, and shared memory is not to be had: in the
// background, with TCP meanwhile. TCP otherwise, and where neither answers or lets us in.
#ifndef CISTERN_CLIENT_STORE_CHANNELS_H_
#define CISTERN_CLIENT_STORE_CHANNELS_H_

#include <memory>
#include <string>
#include <utility>
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
#include "transport/rdma/host.h"
#include "transport/shm/lent_memory.h"

namespace cistern {

// Thread-safe. Outlives the channels it made.
class StoreChannels {
 public:
  struct Options {
    Wire wire = Wire::kAuto;
    int connections = 2;  // to a store, beside the one kept for small messages
    transport::LocalIdentity identity;
    std::shared_ptr<transport::LentMemory> lent;
    std::shared_ptr<transport::rdma::Host> rdma;  // null: this process uses none, because of
    std::string why_no_rdma;
    Clock* clock = &Clock::Real();
  };
  StoreChannels(transport::IoContext* io, Options options)
      : io_(*io), options_(std::move(options)) {}

  // Makes no connection. Unavailable: the wire was forced and does not lead there; says why.
  absl::StatusOr<std::unique_ptr<transport::Channel>> Make(const StoreTable::Endpoint& endpoint);

  // OK where a forced wire leads to the store.
  absl::Status CheckForced(const StoreTable::Endpoint& endpoint) const;

  // What Make and the stores' answers came to, in no order.
  std::vector<StoreWire> Wires() const;

 private:
  // Why a wire is out of the question; OK if it is not.
  absl::Status ShmPossible(const StoreTable::Endpoint& endpoint) const;
  absl::Status RdmaPossible(const StoreTable::Endpoint& endpoint) const;
  // By RDMA or TCP. `no_shm`: why not by shared memory.
  std::unique_ptr<transport::Channel> MakeRemote(const StoreTable::Endpoint& endpoint,
                                                 const std::string& no_shm);
  void NoteRemote(const StoreTable::Endpoint& endpoint, const std::string& no_shm);
  std::unique_ptr<transport::Channel> MakeTcp(const StoreTable::Endpoint& endpoint);
  std::unique_ptr<transport::Channel> MakeRdma(const StoreTable::Endpoint& endpoint);
  std::unique_ptr<transport::Channel> MakeShm(const StoreTable::Endpoint& endpoint,
                                              absl::Duration connect_timeout);
  void Note(const StoreTable::Endpoint& endpoint, std::string wire, std::string why);

  transport::IoContext& io_;
  const Options options_;
  mutable Mutex mutex_;
  absl::flat_hash_map<StoreId, StoreWire> wires_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_STORE_CHANNELS_H_
