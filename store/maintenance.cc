#include "store/maintenance.h"

#include <utility>

namespace cistern::store {

Maintenance::Maintenance(ChunkStore& chunks, RoomKeeper& room, PeerLedger& peers, Clock& clock,
                         std::function<void()> poke_session)
    : chunks_(chunks),
      room_(room),
      peers_(peers),
      clock_(clock),
      poke_session_(std::move(poke_session)),
      last_tick_ns_(absl::ToInt64Nanoseconds(clock.Mono().since_origin)) {}

Maintenance::~Maintenance() { Stop(); }

void Maintenance::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Maintenance::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mutex_);
  tasks_.clear();
}

bool Maintenance::Run(absl::AnyInvocable<void()> task) {
  MutexLock lock(mutex_);
  if (stopping_ || tasks_.size() >= kMaxQueuedTasks) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
  return true;
}

absl::Duration Maintenance::since_tick() const {
  return clock_.Mono().since_origin -
         absl::Nanoseconds(last_tick_ns_.load(std::memory_order_relaxed));
}

size_t Maintenance::queued() const {
  MutexLock lock(mutex_);
  return tasks_.size();
}

void Maintenance::Loop() {
  MonoTime next_judgement = clock_.Mono();
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(mutex_);
      if (!stopping_ && tasks_.empty()) changed_.WaitFor(mutex_, kTick);
      if (stopping_) return;
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
    }
    if (task) task();
    const uint64_t before = chunks_.log().range().next;
    const absl::Time wall = clock_.Wall();
    if (chunks_.NextExpiry() <= wall) chunks_.ExpireDue(wall, kExpirySlice);
    room_.Tick();
    if (const MonoTime now = clock_.Mono(); now >= next_judgement) {
      peers_.Judge(now);
      next_judgement = now + kJudgeEvery;
    }
    if (chunks_.log().range().next != before) poke_session_();
    last_tick_ns_.store(absl::ToInt64Nanoseconds(clock_.Mono().since_origin),
                        std::memory_order_relaxed);
  }
}

}  // namespace cistern::store
