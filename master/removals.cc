#include "master/removals.h"

#include <utility>

namespace cistern::master {

RemovalTicket RemovalTracker::Begin() {
  const RemovalTicket ticket(next_++);
  tickets_[ticket] = Ticket();
  return ticket;
}

void RemovalTracker::Wait(RemovalTicket ticket, StoreIndex store, Version version) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;
  ++it->second.waiting;
  waits_[ReplicaName{store, version}].push_back(ticket);
}

void RemovalTracker::FinishIfDone(RemovalTicket ticket, const Ticket& state) {
  if (state.sealed && state.waiting == 0) finished_.push_back(ticket);
}

void RemovalTracker::Seal(RemovalTicket ticket) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end() || it->second.sealed) return;
  it->second.sealed = true;
  FinishIfDone(ticket, it->second);
}

void RemovalTracker::CountDown(RemovalTicket ticket) {
  auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;  // forgotten meanwhile
  --it->second.waiting;
  FinishIfDone(ticket, it->second);
}

void RemovalTracker::Reported(StoreIndex store, Version version) {
  if (waits_.empty()) return;
  auto it = waits_.find(ReplicaName{store, version});
  if (it == waits_.end()) return;
  const auto tickets = std::move(it->second);
  waits_.erase(it);
  for (RemovalTicket ticket : tickets) CountDown(ticket);
}

void RemovalTracker::StoreLost(StoreIndex store) {
  std::vector<RemovalTicket> lost;
  for (auto it = waits_.begin(); it != waits_.end();) {
    if (it->first.store == store) {
      lost.insert(lost.end(), it->second.begin(), it->second.end());
      waits_.erase(it++);
    } else {
      ++it;
    }
  }
  for (RemovalTicket ticket : lost) CountDown(ticket);
}

void RemovalTracker::Forget(RemovalTicket ticket) { tickets_.erase(ticket); }

uint64_t RemovalTracker::waiting(RemovalTicket ticket) const {
  auto it = tickets_.find(ticket);
  return it == tickets_.end() ? 0 : it->second.waiting;
}

std::vector<RemovalTicket> RemovalTracker::TakeFinished() {
  std::vector<RemovalTicket> out;
  for (RemovalTicket ticket : finished_) {
    if (tickets_.erase(ticket) > 0) out.push_back(ticket);
  }
  finished_.clear();
  return out;
}

}  // namespace cistern::master
