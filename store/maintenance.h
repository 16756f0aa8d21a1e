// The store's background thread: expiry, the reserve, puts that wait for room, slow readers,
// versions promised ahead, and checks that hash much.
#ifndef CISTERN_STORE_MAINTENANCE_H_
#define CISTERN_STORE_MAINTENANCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/chunk_store.h"
#include "store/peer_ledger.h"
#include "store/room_keeper.h"

namespace cistern::store {

// Owns one thread. Thread-safe. Borrows everything.
class Maintenance {
 public:
  static constexpr absl::Duration kTick = absl::Milliseconds(5);
  static constexpr absl::Duration kJudgeEvery = absl::Milliseconds(100);
  static constexpr size_t kMaxQueuedTasks = 256;
  static constexpr size_t kExpirySlice = 1'024;

  // `poke_session`: records were appended.
  Maintenance(ChunkStore& chunks, RoomKeeper& room, PeerLedger& peers, Clock& clock,
              std::function<void()> poke_session);
  ~Maintenance();  // stops

  void Start();
  // Joins; tasks not run yet are destroyed unrun. Idempotent.
  void Stop();

  // Runs `task` soon. False: the queue is full.
  bool Run(absl::AnyInvocable<void()> task);

  // How long ago the thread last came round: long when it hangs, or waits for the store's lock.
  absl::Duration since_tick() const;
  size_t queued() const;

 private:
  void Loop();

  ChunkStore& chunks_;
  RoomKeeper& room_;
  PeerLedger& peers_;
  Clock& clock_;
  const std::function<void()> poke_session_;
  std::thread thread_;
  std::atomic<int64_t> last_tick_ns_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::AnyInvocable<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_MAINTENANCE_H_
