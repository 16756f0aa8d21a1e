#include "master/session_call.h"

#include <algorithm>

#include "master/evictor.h"
#include "master/master_core.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

// A page or a delta is done when every record was looked at.
bool Done(const absl::Status& status, size_t next, const wire::Delta& records) {
  return !status.ok() || next >= records.ids().size() / KeyId::kBytes;
}

}  // namespace

bool SessionCall::GiveBytes(PoolState& pool, Store& store, MonoTime now) {
  const wire::NeedBytes& need = message_.need_bytes();
  const TierMask tier = need.tier() == kSsd ? kSsd : need.tier() == kCold ? kCold : kDram;
  if (!applied_) wanted_bytes_ = std::max(need.bytes(), need.extent_bytes());
  applied_ = true;
  return !EvictBytes(pool, store, tier, &wanted_bytes_, wire::CAUSE_EVICT_ASKED, now).more;
}

bool SessionCall::Step(MasterCore& core, MonoTime now) {
  PoolState& pool = core.pool();
  auto it = pool.sessions.find(session_);
  if (it == pool.sessions.end() || it->second->ended()) {
    status_ = absl::AbortedError("the session has ended");
    return true;
  }
  SessionCore& session = *it->second;
  Store& store = *pool.stores.at(session.store());
  switch (message_.kind_case()) {
    case wire::StoreMessage::kDelta:
      if (applied_) {
        return session.SettleCommands(pool, store, now) && !EvictToWatermark(pool, store, now).more;
      }
      status_ = session.OnDelta(pool, store, message_.delta(), &next_record_, now);
      applied_ = Done(status_, next_record_, message_.delta());
      return !status_.ok();
    case wire::StoreMessage::kSnapshotBegin:
      status_ = session.OnSnapshotBegin(pool, store, message_.snapshot_begin());
      return true;
    case wire::StoreMessage::kSnapshotPage:
      status_ = session.OnSnapshotPage(pool, store, message_.snapshot_page(), &next_record_, now);
      return Done(status_, next_record_, message_.snapshot_page().records());
    case wire::StoreMessage::kSnapshotEnd:
      status_ = session.OnSnapshotEnd(pool, store, message_.snapshot_end());
      return true;
    case wire::StoreMessage::kHeartbeat:
      if (!applied_) status_ = session.OnHeartbeat(store, message_.heartbeat(), now);
      applied_ = true;
      return !status_.ok() || session.SettleCommands(pool, store, now);
    case wire::StoreMessage::kFenceDone:
      status_ = session.OnFenceDone(message_.fence_done());
      return true;
    case wire::StoreMessage::kNeedBytes:
      return GiveBytes(pool, store, now);
    default:
      status_ = absl::InvalidArgumentError("session: a message out of place");
      return true;
  }
}

}  // namespace cistern::master
