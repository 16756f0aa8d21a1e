#include "store/room_keeper.h"

#include <algorithm>
#include <utility>

namespace cistern::store {

RoomKeeper::RoomKeeper(ChunkStore& chunks, Clock& clock, Options options)
    : chunks_(chunks), clock_(clock), options_(options) {}

void RoomKeeper::SetMaster(std::function<absl::Duration()> alone_for,
                           std::function<void(uint64_t, uint64_t)> need_bytes) {
  alone_for_ = std::move(alone_for);
  need_bytes_ = std::move(need_bytes);
}

bool RoomKeeper::MakeRoom(const RoomNeeded& needed) {
  // Only other puts' uncommitted bytes stand in the way: evicting would not help.
  if (needed.bytes == 0 && !needed.headers) return false;
  if (need_bytes_) need_bytes_(needed.bytes, needed.extent_bytes);
  // Out of headers, any chunk frees one; asking for one page's worth takes the oldest.
  const uint64_t bytes = std::max<uint64_t>(needed.bytes, Extent::kAlignment);
  const EvictResult freed =
      chunks_.EvictSelf(bytes, needed.extent_bytes, wire::CAUSE_EVICT_SELF, clock_.Wall());
  return freed.chunks != 0;
}

bool RoomKeeper::Wait(absl::AnyInvocable<void()> retry) {
  MutexLock lock(mutex_);
  if (waiters_.size() >= options_.max_waiters) return false;
  waiters_.push_back(std::move(retry));
  return true;
}

size_t RoomKeeper::waiter_count() const {
  MutexLock lock(mutex_);
  return waiters_.size();
}

void RoomKeeper::Tick() {
  const uint64_t deficit = chunks_.ReserveDeficit();
  if (deficit != 0) {
    if (need_bytes_) need_bytes_(deficit, 0);
    chunks_.EvictSelf(deficit, 0, wire::CAUSE_EVICT_SELF, clock_.Wall());
  } else if (alone_for_ && alone_for_() >= options_.self_evict_after && has_waiters()) {
    chunks_.EvictSelf(Extent::kAlignment, 0, wire::CAUSE_EVICT_SELF, clock_.Wall());
  }
  std::vector<absl::AnyInvocable<void()>> waiters;
  {
    MutexLock lock(mutex_);
    waiters.swap(waiters_);
  }
  for (auto& retry : waiters) retry();
}

}  // namespace cistern::store
