#include "master/master_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "master/background.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

// What one Tick or BackgroundStep does at most.
constexpr uint32_t kScrubsPerTick = 128;
constexpr uint32_t kSweepSlice = 1024;
// It counts restarts of the master, so nothing honest comes near (one a second for four years).
// What is numbered across restarts has it above the bits of a counter.
constexpr uint64_t kMaxEpoch = uint64_t{1} << 27;
static_assert(kMaxEpoch << PoolState::kMutationCounterBits == uint64_t{1} << 63);

}  // namespace

MasterCore::MasterCore(MasterOptions options, StateStore& state)
    : state_store_(state), pool_(std::make_unique<PoolState>(options, state)) {
  pool_->map.set_version(1);
  pool_->map.add_masters();
}

MasterCore::~MasterCore() = default;

absl::Status MasterCore::Start(MonoTime now) {
  CISTERN_ASSIGN_OR_RETURN(const DurableState durable, state_store_.Load());
  CISTERN_RETURN_IF_ERROR(pool_->namespaces.Restore(durable.namespaces));
  pool_->started = now;
  // A first master has no forerunner whose leases could still run.
  pool_->quiet_until = durable.epoch.value == 0 ? now : now + pool_->options.max_lease;
  return RaiseEpoch(Epoch(durable.epoch.value + 1));
}

absl::Status MasterCore::RaiseEpoch(Epoch epoch) {
  CISTERN_RETURN_IF_ERROR(state_store_.SaveEpoch(epoch));
  pool_->epoch = epoch;
  pool_->stores.StartDirectoryEpoch(epoch);
  for (auto& [id, session] : pool_->sessions) session->QueueEpochChanged(epoch);
  return absl::OkStatus();
}

void MasterCore::SetEndpoint(const wire::Endpoint& endpoint) {
  *pool_->map.mutable_masters(0) = endpoint;
}

absl::Status MasterCore::OpenNamespace(const wire::OpenNamespaceRequest& request,
                                       wire::OpenNamespaceReply* reply) {
  CISTERN_ASSIGN_OR_RETURN(const NamespaceRegistry::Opened opened,
                           pool_->namespaces.Open(request.tenant(), request.name(),
                                                  request.fingerprint(), request.options()));
  *reply->mutable_info() = pool_->namespaces.at(opened.index).info;
  reply->set_created(opened.created);
  reply->set_ns_ref(opened.index.value + 1);
  return absl::OkStatus();
}

bool MasterCore::ConfirmNamespace(uint32_t ns_ref) {
  return pool_->namespaces.Confirm(NamespaceIndex(ns_ref - 1));
}

void MasterCore::WithdrawNamespace(uint32_t ns_ref) {
  // State stores queue, which does not fail.
  (void)pool_->namespaces.Withdraw(NamespaceIndex(ns_ref - 1));
}

absl::Status MasterCore::BindNamespace(const wire::BindNamespaceRequest& request,
                                       wire::OpenNamespaceReply* reply) {
  CISTERN_ASSIGN_OR_RETURN(const NamespaceId id, NamespaceId::Parse(request.id()));
  const NamespaceIndex index = pool_->namespaces.FindById(id);
  if (index.none()) {
    return absl::NotFoundError(absl::StrCat("no namespace has the id ", id.ToHex()));
  }
  *reply->mutable_info() = pool_->namespaces.at(index).info;
  reply->set_ns_ref(index.value + 1);
  return absl::OkStatus();
}

void MasterCore::GetMaps(const wire::GetMapsRequest& request, wire::GetMapsReply* reply) {
  if (request.map_version() != pool_->map.version()) *reply->mutable_map() = pool_->map;
  if (request.directory_version() != pool_->stores.directory_version()) {
    pool_->stores.FillDirectory(reply->mutable_directory());
  }
}

absl::Status MasterCore::Release(const wire::ReleaseRequest& request, wire::ReleaseReply* reply,
                                 MonoTime now) {
  CISTERN_ASSIGN_OR_RETURN(const LeaseId id, LeaseId::Parse(request.lease_id()));
  ReleasedLease released;
  reply->set_released(pool_->leases.Release(id, now, &released.entries, &released.until_tick));
  if (released.entries.empty()) return absl::OkStatus();
  // Most leases are done with here; the rest of long ones follows in the background.
  if (!DropReleased(*pool_, released, now)) pool_->released.push_back(std::move(released));
  return absl::OkStatus();
}

std::vector<RemovalTicket> MasterCore::TakeFinishedRemovals() {
  return pool_->removals.TakeFinished();
}

void MasterCore::ForgetRemoval(RemovalTicket ticket) { pool_->removals.Forget(ticket); }

absl::StatusOr<MasterCore::Opened> MasterCore::OnHello(const wire::SessionHello& hello,
                                                       MonoTime now) {
  if (hello.pool_id() != pool_->options.pool_id.view()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this is pool ", pool_->options.pool_id.ToHex(), ", the store is of another"));
  }
  CISTERN_ASSIGN_OR_RETURN(const StoreId store_id, StoreId::Parse(hello.store_id()));
  if (hello.highest_epoch() > kMaxEpoch) {
    // Outbid, it would wrap to 0, now or at a restart, and every store refuse its master.
    return absl::InvalidArgumentError(
        absl::StrCat("session: epoch ", hello.highest_epoch(), " is out of bounds"));
  }
  if (hello.highest_epoch() > pool_->epoch.value) {
    if (hello.in_session_elsewhere()) {
      pool_->fenced = absl::FailedPreconditionError(
          absl::StrCat("store ", hello.name(), " is in session with a master of epoch ",
                       hello.highest_epoch(), ", this one has ", pool_->epoch.value,
                       ": two masters run for one pool, this one must stop"));
      return pool_->fenced;
    }
    CISTERN_RETURN_IF_ERROR(RaiseEpoch(Epoch(hello.highest_epoch() + 1)));
  }
  Store* store = pool_->stores.FindOrAdd(store_id);
  if (store == nullptr) return absl::ResourceExhaustedError("the pool has 65,535 stores");
  if (SessionCore* old = pool_->SessionOf(*store); old != nullptr) {
    old->OnClosed(*pool_, *store, now);
    old->QueueError(absl::AbortedError("the store has opened another session"));
  }
  auto session = std::make_unique<SessionCore>(SessionId(pool_->next_session++), store->index);
  Opened opened;
  opened.session = session->id();
  CISTERN_RETURN_IF_ERROR(session->AcceptHello(*pool_, *store, hello, now, &opened.ack));
  pool_->sessions[opened.session] = std::move(session);
  return opened;
}

bool MasterCore::TakeBackStep(MonoTime now) { return RestoreKept(*pool_, now); }

void MasterCore::OnSessionClosed(SessionId session, MonoTime now) {
  auto it = pool_->sessions.find(session);
  if (it == pool_->sessions.end()) return;
  Store& store = *pool_->stores.at(it->second->store());
  if (store.session == session) it->second->OnClosed(*pool_, store, now);
  pool_->sessions.erase(it);
}

std::vector<SessionId> MasterCore::SessionsWithOutput() {
  std::vector<SessionId> out;
  for (const auto& [id, session] : pool_->sessions) {
    if (session->HasOutput()) out.push_back(id);
  }
  return out;
}

void MasterCore::TakeOutgoing(SessionId session, size_t max,
                              std::vector<wire::MasterMessage>* out) {
  auto it = pool_->sessions.find(session);
  if (it != pool_->sessions.end()) it->second->TakeOutput(*pool_, max, out);
}

const absl::Status& MasterCore::fenced() const { return pool_->fenced; }
Epoch MasterCore::epoch() const { return pool_->epoch; }

void MasterCore::Tick(MonoTime now, absl::Time wall) {
  pool_->wall_unix_s = static_cast<uint32_t>(std::max<int64_t>(0, absl::ToUnixSeconds(wall)));
  pool_->leases.Expire(now, kSliceKeys);
  pool_->in_progress.Expire(now, kSliceKeys);
  UpdateStoreStates(*pool_, now);
  ScrubLeases(*pool_, kScrubsPerTick, now);
  for (auto& [id, session] : pool_->sessions) session->QueueAckIfDue(true);
  pool_->evict_more = EvictInTurn(*pool_, now).more;
}

bool MasterCore::BackgroundStep(MonoTime now) {
  // What of a tick's work is more than a slice. Leases run out by the thousand, at the same tick.
  if (pool_->leases.Expire(now, kSliceKeys)) return true;
  if (pool_->in_progress.Expire(now, kSliceKeys)) return true;
  if (pool_->evict_more) {
    pool_->evict_more = EvictInTurn(*pool_, now).more;
    return true;
  }
  if (!pool_->kept.empty()) {
    TakeBackStep(now);
    return true;
  }
  if (!pool_->released.empty()) {
    if (DropReleased(*pool_, pool_->released.front(), now)) pool_->released.pop_front();
    return true;
  }
  if (CompactRings(*pool_)) return true;
  return SweepSlice(*pool_, kSweepSlice);
}

}  // namespace cistern::master
