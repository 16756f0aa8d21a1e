#include "master/removal_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cistern::master {
namespace {

bool Expired(Removal& removal, MonoTime now) {
  return removal.deadline <= now || (removal.abandoned && removal.abandoned());
}

}  // namespace

void RemovalTable::AddWaiting(RemovalTicket ticket, std::unique_ptr<Removal> removal) {
  waiting_[ticket] = std::move(removal);
}

void RemovalTable::AddBlocked(std::unique_ptr<Removal> removal) {
  blocked_.push_back(std::move(removal));
}

std::unique_ptr<Removal> RemovalTable::TakeWaiting(RemovalTicket ticket) {
  const auto it = waiting_.find(ticket);
  if (it == waiting_.end()) return nullptr;
  std::unique_ptr<Removal> removal = std::move(it->second);
  waiting_.erase(it);
  return removal;
}

RemovalTable::Removals RemovalTable::TakeExpired(MonoTime now) {
  Removals expired;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (Expired(*it->second, now)) {
      expired.push_back(std::move(it->second));
      waiting_.erase(it++);
    } else {
      ++it;
    }
  }
  const auto first = std::stable_partition(blocked_.begin(), blocked_.end(),
                                           [now](const auto& r) { return !Expired(*r, now); });
  expired.insert(expired.end(), std::make_move_iterator(first),
                 std::make_move_iterator(blocked_.end()));
  blocked_.erase(first, blocked_.end());
  return expired;
}

RemovalTable::Removals RemovalTable::TakeBlocked() { return std::exchange(blocked_, {}); }

}  // namespace cistern::master
