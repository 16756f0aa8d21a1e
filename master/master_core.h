// The master's functional core: everything it decides, behind one façade.
#ifndef CISTERN_MASTER_MASTER_CORE_H_
#define CISTERN_MASTER_MASTER_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "master/admin_views.h"
#include "master/calls.h"
#include "master/master_options.h"
#include "master/session_call.h"
#include "master/state_store.h"
#include "master/types.h"
#include "proto/master.pb.h"
#include "proto/store.pb.h"

namespace cistern::master {

struct PoolState;

// Promise: given the requests, records and the time, holds the index that the stores' records
// describe, keeps each store below its high watermark by commands, and answers clients. A
// placement names only stores that are serving; a lookup only replicas that a store has reported.
// Role: the shell (frame service, session and admin services, tick thread) drives it under ONE lock
// and does all I/O outside that lock. Every method is short: what can be long is cut into slices.
// After any call the shell drains SessionsWithOutput / TakeOutgoing and TakeFinishedRemovals.
// Thread-safety: none. Owns all its state; borrows the StateStore.
class MasterCore {
 public:
  MasterCore(MasterOptions options, StateStore& state);
  ~MasterCore();
  MasterCore(const MasterCore&) = delete;
  MasterCore& operator=(const MasterCore&) = delete;

  // Loads the durable state and takes the next epoch. Call once, first; make the state store
  // durable before serving.
  absl::Status Start(MonoTime now);
  // Where clients reach this master, for the partition map.
  void SetEndpoint(const wire::Endpoint& endpoint);

  // --- Clients. Batch calls are in calls.h. `ns_ref` in any request is what OpenNamespace or
  // BindNamespace answered, the same on every connection of this process.
  // InvalidArgument: name, fingerprint or options out of bounds. FailedPrecondition: the name
  // stands for another fingerprint (the message shows both and what to do). ResourceExhausted: too
  // many namespaces. The namespace must be durable before the reply goes; then say which it was.
  absl::Status OpenNamespace(const wire::OpenNamespaceRequest& request,
                             wire::OpenNamespaceReply* reply);
  // It is durable. False: it was removed or withdrawn meanwhile.
  bool ConfirmNamespace(uint32_t ns_ref);
  // It could not be made durable: a name that nobody was told of is free again.
  void WithdrawNamespace(uint32_t ns_ref);
  // NotFound: open it by name instead.
  absl::Status BindNamespace(const wire::BindNamespaceRequest& request,
                             wire::OpenNamespaceReply* reply);
  void GetMaps(const wire::GetMapsRequest& request, wire::GetMapsReply* reply);
  absl::Status Release(const wire::ReleaseRequest& request, wire::ReleaseReply* reply,
                       MonoTime now);

  // --- Removals that wait for records. Those that have come to their end since the last call.
  std::vector<RemovalTicket> TakeFinishedRemovals();
  // Stops waiting (the deadline has come). The stores' records still change the index.
  void ForgetRemoval(RemovalTicket ticket);

  // --- Sessions. The shell has checked both sides' proofs before Hello gets here. Messages after
  // it go through SessionCall.
  struct Opened {
    SessionId session;
    wire::SessionHelloAck ack;  // to be sent first
  };
  // FailedPrecondition: another pool, or bad content: tell the store, it must not retry soon.
  // Unavailable: try again shortly: what the store's last session left is still worked off (the
  // victims of its commands: TakeBackStep; the sweep after its snapshot: BackgroundStep).
  // An older session of the same store is over: it shows up in SessionsWithOutput with an error.
  absl::StatusOr<Opened> OnHello(const wire::SessionHello& hello, MonoTime now);
  // Takes back some of the victims of sessions that have ended. True when some are left.
  bool TakeBackStep(MonoTime now);
  // The stream ended, for whatever reason. Idempotent. The store is dead at once; its entries stay
  // for forget_after.
  void OnSessionClosed(SessionId session, MonoTime now);
  // Sessions for which TakeOutgoing has something, each once.
  std::vector<SessionId> SessionsWithOutput();
  // Appends at most `max` messages in the order to be sent. After an ErrorReply nothing follows:
  // the shell sends it and ends the stream. Call it again when the stream can take more.
  void TakeOutgoing(SessionId session, size_t max, std::vector<wire::MasterMessage>* out);
  // OK, or why this master must exit: a store is now in session with one of a higher epoch.
  const absl::Status& fenced() const;
  Epoch epoch() const;

  // Whether this session is still open.
  bool InSession(SessionId session) const;
  // Tells a store (its name, id in hex, or number) what to do with its segments. NotFound names the
  // stores there are. InvalidArgument: several have that name. FailedPrecondition: it is not in
  // session. ResourceExhausted: it does not take what it is sent.
  struct Commanded {
    SessionId session;
    std::string store;  // its name
  };
  absl::StatusOr<Commanded> QueueSegmentCommand(std::string_view store,
                                                const wire::SegmentCommand& command);

  // --- Time. Call Tick every 10 to 50 ms: acks, watermarks, leases, in-progress entries, stores'
  // silence. Bounded work.
  void Tick(MonoTime now, absl::Time wall);
  // One slice of background work (sweeps). True when there is more: call again soon.
  bool BackgroundStep(MonoTime now);

  // --- Administration (see admin_views.h). Slices where the index is scanned.
  PoolView Pool(MonoTime now) const;
  std::vector<StoreView> Stores(MonoTime now) const;
  std::vector<NamespaceView> Namespaces() const;
  // The sums that metrics show. Looks once at each store and namespace.
  PoolNumbers Numbers(MonoTime now) const;
  // One slice over the namespaces from `*next` on, in the order in which they came: appends to
  // `out` (of `info` only the name) while it has fewer than `max`, adds the rest to `others`. True:
  // there are more.
  bool NamespacesFrom(uint32_t* next, size_t max, NamespaceView* others,
                      std::vector<NamespaceView>* out) const;
  // Appends up to `limit` chunks from entry number `*page` on, looking at no more than kListSlice
  // entries, and moves *page; *page = 0 when the end was reached. `ns` none = every namespace.
  static constexpr uint32_t kListSlice = 8192;
  void ListChunks(NamespaceIndex ns, uint64_t* page, uint32_t limit, MonoTime now,
                  std::vector<ChunkView>* out) const;
  // NotFound when the index has no such chunk.
  absl::StatusOr<ChunkView> StatChunk(NamespaceIndex ns, const KeyId& id, Shard shard,
                                      MonoTime now) const;
  // None when no namespace has this name.
  NamespaceIndex FindNamespace(std::string_view tenant, std::string_view name) const;
  // Queues evictions (cause admin) of chunks that are neither leased nor pinned, oldest first where
  // every namespace is meant. One slice: call until `*page` comes back 0 or enough bytes went.
  struct Evicted {
    uint64_t chunks = 0;
    uint64_t bytes = 0;
  };
  Evicted EvictSlice(NamespaceIndex ns, uint64_t max_bytes, uint64_t* page, MonoTime now);
  // Drops the name, durably, and tells the stores that its chunks are gone for good; what is leased
  // or pinned goes too (a RemoveCall without force finds out first). Returns how many chunks the
  // index had of it. NotFound: no such name.
  absl::StatusOr<uint64_t> RemoveNamespace(std::string_view name);

  // For the classes around this one (calls, sessions) and their tests.
  PoolState& pool() { return *pool_; }

 private:
  absl::Status RaiseEpoch(Epoch epoch);

  StateStore& state_store_;
  const std::unique_ptr<PoolState> pool_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_MASTER_CORE_H_
