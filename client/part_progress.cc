#include "client/part_progress.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace cistern {

PartProgress::PartProgress(size_t chunks, std::function<void()> on_change)
    : on_change_(std::move(on_change)),
      parts_(chunks),
      states_(chunks, State::kUnderWay),
      behind_(chunks) {
  if (chunks == 0) done_ = kAll;
}

PartProgress::~PartProgress() {
  if (event_fd_ >= 0) close(event_fd_);
}

bool PartProgress::LeaveLocked(uint32_t parts) {
  uint32_t done = done_.load(std::memory_order_relaxed);
  if (parts > done || --behind_ > 0) return false;
  // Everybody has moved on: so much for the cost of looking at all of them.
  done = kAll;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (states_[i] != State::kUnderWay || parts_[i] > done) continue;
    if (parts_[i] < done) behind_ = 0;
    done = parts_[i];
    ++behind_;
  }
  done_.store(done, std::memory_order_release);
  return true;
}

void PartProgress::SignalLocked() {
  if (event_fd_ < 0) return;
  const uint64_t one = 1;
  // Fails only when the counter is at its greatest: it is readable then.
  [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof(one));
}

void PartProgress::Advance(uint32_t chunk, uint32_t parts) {
  {
    MutexLock lock(mutex_);
    if (states_[chunk] != State::kUnderWay || parts <= parts_[chunk]) return;
    const uint32_t before = std::exchange(parts_[chunk], parts);
    if (parts == kAll) states_[chunk] = State::kComplete;
    // Still without the part that the batch waits for: it was counted as such and stays so.
    if (parts <= done_.load(std::memory_order_relaxed)) return;
    if (!LeaveLocked(before)) return;
    SignalLocked();
  }
  on_change_();
}

void PartProgress::Fail(uint32_t chunk, ChunkCode code) {
  {
    MutexLock lock(mutex_);
    const State before = std::exchange(states_[chunk], State::kFailed);
    if (before == State::kFailed) return;
    missed_.push_back({chunk, code, parts_[chunk]});
    if (before == State::kUnderWay) LeaveLocked(parts_[chunk]);
    SignalLocked();
  }
  on_change_();
}

bool PartProgress::Lacks(uint32_t part) const {
  MutexLock lock(mutex_);
  return std::any_of(missed_.begin(), missed_.end(),
                     [part](const MissedChunk& m) { return m.parts_done <= part; });
}

std::vector<MissedChunk> PartProgress::missed() const {
  MutexLock lock(mutex_);
  return missed_;
}

int PartProgress::EventFd() {
  MutexLock lock(mutex_);
  if (event_fd_ < 0) {
    const bool now = parts_done() > 0 || !missed_.empty();
    event_fd_ = eventfd(now ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  return event_fd_;
}

}  // namespace cistern
