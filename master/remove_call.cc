#include <algorithm>

#include "master/background.h"
#include "master/calls.h"
#include "master/master_core.h"
#include "master/pool_state.h"

namespace cistern::master {

absl::Status RemoveCall::Prepare() {
  if (request_.whole_pool() && !request_.all()) {
    return absl::InvalidArgumentError("remove: of the whole pool only all");
  }
  if (request_.all() && !request_.ids().empty()) {
    return absl::InvalidArgumentError("remove: either ids or all");
  }
  return batch_.Parse(request_.ids(), request_.shard_first(), request_.shard_count());
}

bool RemoveCall::Start(PoolState& pool) {
  started_ = true;
  if (request_.whole_pool()) {
    ns_ = NamespaceIndex(NamespaceIndex::kNone);
  } else if (!BeginCall(
                 pool, request_.map_version(), request_.ns_ref(),
                 [this] { return reply_.mutable_map(); }, &ns_, &status_)) {
    return false;
  }
  // What the deadline cuts off keeps this status.
  reply_.mutable_statuses()->assign(batch_.chunks(),
                                    static_cast<char>(wire::CHUNK_DEADLINE_EXCEEDED));
  ticket_ = pool.removals.Begin();
  ++pool.counters.removes;
  if (request_.all()) {
    for (const auto& [id, session] : pool.sessions) AddFence(pool, id);
  }
  return true;
}

void RemoveCall::AddFence(PoolState& pool, SessionId session) {
  const auto it = pool.sessions.find(session);
  if (it == pool.sessions.end() || it->second->ended()) return;
  const bool asked = std::any_of(fences_.begin(), fences_.end(),
                                 [session](const OpenFence& f) { return f.session == session; });
  if (!asked) fences_.push_back({session, it->second->QueueFence()});
}

bool RemoveCall::FencesPassed(PoolState& pool) {
  fences_.erase(std::remove_if(fences_.begin(), fences_.end(),
                               [&pool](const OpenFence& fence) {
                                 const auto it = pool.sessions.find(fence.session);
                                 return it == pool.sessions.end() || it->second->ended() ||
                                        it->second->FencePassed(fence.number);
                               }),
                fences_.end());
  return fences_.empty();
}

bool RemoveCall::Step(MasterCore& core, MonoTime now) {
  PoolState& pool = core.pool();
  if (!started_ && !Start(pool)) return true;
  // Leases given back before we came hold nothing, though their chunks may still be marked.
  if (!releases_.has_value()) releases_ = pool.released.size();
  releases_ = std::min(*releases_, pool.released.size());
  if (*releases_ > 0) {
    if (DropReleased(pool, pool.released.front(), now)) {
      pool.released.pop_front();
      --*releases_;
    }
    return false;
  }
  blocked_ = pool.removals.full() ||
             std::any_of(pool.sessions.begin(), pool.sessions.end(), [](const auto& s) {
               return !s.second->ended() && !s.second->CanCommand();
             });
  const bool keys_left = !request_.all() && next_chunk_ < batch_.chunks();
  // Keys are worked off before it is known which fences they need.
  blocked_ = blocked_ || (!keys_left && !FencesPassed(pool));
  if (blocked_) return false;
  bool over = false;
  if (request_.all()) {
    over = StepAll(pool, now);
  } else if (keys_left) {
    over = StepKeys(pool, now) && late_.empty();
  } else {
    over = StepLate(pool, now);
  }
  Flush(pool);
  if (over) pool.removals.Seal(ticket_);
  return over;
}

wire::ChunkStatus RemoveCall::RemoveChunk(PoolState& pool, EntryIndex entry, MonoTime now) {
  const Heat& heat = pool.index.at(entry).heat;
  if (!request_.force() && (heat.pinned() || heat.leased(LeaseTable::TickOf(now)))) {
    reply_.set_refused_count(reply_.refused_count() + 1);
    return wire::CHUNK_FAILED_PRECONDITION;
  }
  wire::ChunkStatus status = wire::CHUNK_UNAVAILABLE;
  away_ = false;
  pool.index.ForEachReplica(entry, [&](const ReplicaSlot& slot) {
    Store& store = *pool.stores.at(slot.store());
    SessionCore* session = pool.SessionOf(store);
    if (session == nullptr || session->ended()) {  // nobody to tell
      away_ = true;
      return true;
    }
    status = wire::CHUNK_IN_PROGRESS;
    pool.removals.Wait(ticket_, store.index, slot.version());
    const Victim victim = MarkVictim(pool.index, store, entry, kAllTiers);
    if (victim.tiers == 0) return true;  // told already
    auto it = std::find_if(batch_victims_.begin(), batch_victims_.end(),
                           [&store](const StoreVictims& v) { return v.store == store.index; });
    if (it == batch_victims_.end()) {
      it = batch_victims_.insert(it, StoreVictims{store.index, {}});
    }
    it->victims.push_back(victim);
    return true;
  });
  return status;
}

bool RemoveCall::StepKeys(PoolState& pool, MonoTime now) {
  const size_t end = std::min<size_t>(batch_.chunks(), next_chunk_ + kSliceKeys);
  slice_.Find(pool, batch_, ns_, next_chunk_, end);
  for (size_t i = next_chunk_; i < end; ++i) {
    const EntryIndex entry = slice_.entries[i - next_chunk_];
    const auto status = entry.none() ? wire::CHUNK_NOT_FOUND : RemoveChunk(pool, entry, now);
    (*reply_.mutable_statuses())[i] = static_cast<char>(status);
    if (!entry.none()) continue;
    const auto* placed = pool.in_progress.Find({batch_.id(i), batch_.shard(i)}, now);
    if (placed == nullptr) continue;
    const SessionId session = pool.stores.at(placed->store)->session;
    if (pool.sessions.contains(session)) {
      AddFence(pool, session);
      late_.push_back(static_cast<uint32_t>(i));
    }
  }
  next_chunk_ = end;
  return end == batch_.chunks();
}

bool RemoveCall::StepLate(PoolState& pool, MonoTime now) {
  const size_t end = std::min<size_t>(late_.size(), next_late_ + kSliceKeys);
  for (; next_late_ < end; ++next_late_) {
    const size_t i = late_[next_late_];
    const EntryIndex entry = pool.index.Find(batch_.id(i), batch_.shard(i));
    if (entry.none() || pool.index.at(entry).ns() != ns_) continue;
    (*reply_.mutable_statuses())[i] = static_cast<char>(RemoveChunk(pool, entry, now));
  }
  return next_late_ == late_.size();
}

bool RemoveCall::StepAll(PoolState& pool, MonoTime now) {
  const uint32_t limit = pool.index.entry_limit();
  const uint64_t until = told_ + kSliceKeys;
  for (uint32_t looks = 0; looks < MasterCore::kListSlice && told_ < until; ++looks) {
    if (next_entry_ >= limit) return true;
    const EntryIndex entry(next_entry_++);
    if (!pool.index.InUse(entry)) continue;
    if (!ns_.none() && pool.index.at(entry).ns() != ns_) continue;
    const wire::ChunkStatus status = RemoveChunk(pool, entry, now);
    if (status == wire::CHUNK_IN_PROGRESS) ++told_;
    if (status != wire::CHUNK_FAILED_PRECONDITION && away_) {
      reply_.set_unreachable_count(reply_.unreachable_count() + 1);
    }
  }
  return false;
}

void RemoveCall::Flush(PoolState& pool) {
  for (const StoreVictims& batch : batch_victims_) {
    SessionCore* session = pool.SessionOf(*pool.stores.at(batch.store));
    session->QueueEvict(pool, batch.victims, kAllTiers, wire::CAUSE_REMOVED);
  }
  batch_victims_.clear();
}

bool RemoveCall::FinishStep(MasterCore& core, bool in_time) {
  PoolState& pool = core.pool();
  if (!status_.ok() || reply_.has_map()) return true;
  if (request_.all()) {
    const uint64_t waiting = std::min(told_, pool.removals.waiting(ticket_));
    reply_.set_removed_count(told_ - waiting);
    pool.removals.Forget(ticket_);
    return true;
  }
  const size_t end = std::min<size_t>(batch_.chunks(), next_finish_ + kSliceKeys);
  slice_.Find(pool, batch_, ns_, next_finish_, end);
  for (size_t i = next_finish_; i < end; ++i) {
    char& status = (*reply_.mutable_statuses())[i];
    if (status != static_cast<char>(wire::CHUNK_IN_PROGRESS)) continue;
    if (slice_.entries[i - next_finish_].none()) {
      status = static_cast<char>(wire::CHUNK_OK);
      reply_.set_removed_count(reply_.removed_count() + 1);
    } else {
      status = static_cast<char>(in_time ? wire::CHUNK_UNAVAILABLE : wire::CHUNK_DEADLINE_EXCEEDED);
    }
  }
  next_finish_ = end;
  if (end < batch_.chunks()) return false;
  pool.removals.Forget(ticket_);
  return true;
}

}  // namespace cistern::master
