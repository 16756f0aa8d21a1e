// How far an asynchronous get has come, by part, for those who use the first parts while the others
// still arrive.
#ifndef CISTERN_CLIENT_PART_PROGRESS_H_
#define CISTERN_CLIENT_PART_PROGRESS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/mutex.h"
#include "client/client.h"

namespace cistern {

// Thread-safe. Says of each chunk how many of its parts are in place, and of the batch how many are
// in place in every chunk that has not failed. Neither ever goes back. Time: in proportion to the
// calls of Advance.
class PartProgress {
 public:
  static constexpr uint32_t kAll = PendingGet::kAllParts;

  // `on_change` runs, without a lock, after parts_done() has grown or missed() has.
  PartProgress(size_t chunks, std::function<void()> on_change);
  ~PartProgress();

  // The chunk's parts before number `parts` are in place; kAll: it is complete.
  void Advance(uint32_t chunk, uint32_t parts);
  // It will get no further. Once it is complete, or has failed, this does nothing but note the
  // failure of a complete one.
  void Fail(uint32_t chunk, ChunkCode code);

  // See PendingGet.
  uint32_t parts_done() const { return done_.load(std::memory_order_acquire); }
  // Whether some chunk failed without that part.
  bool Lacks(uint32_t part) const;
  std::vector<MissedChunk> missed() const;
  int EventFd();

 private:
  enum class State : uint8_t { kUnderWay, kComplete, kFailed };
  // `parts` counted among those under way no more, or not so low.
  bool LeaveLocked(uint32_t parts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SignalLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void()> on_change_;
  std::atomic<uint32_t> done_{0};  // written under mutex_
  mutable Mutex mutex_;
  std::vector<uint32_t> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  size_t behind_ ABSL_GUARDED_BY(mutex_);  // chunks under way without part done_
  std::vector<MissedChunk> missed_ ABSL_GUARDED_BY(mutex_);
  int event_fd_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_PART_PROGRESS_H_
