// Finds room for puts: the master keeps every store under its high watermark ahead of need; this is
// for the times when that was not enough.
//
// A store below its reserve, without a fitting extent, or without its master for a while evicts by
// itself. Puts that still find nothing wait here, within their deadlines, and are tried again when
// something was freed or a tick has passed.
#ifndef CISTERN_STORE_ROOM_KEEPER_H_
#define CISTERN_STORE_ROOM_KEEPER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/chunk_store.h"

namespace cistern::store {

// Thread-safe. Borrows the store and the clock.
class RoomKeeper {
 public:
  struct Options {
    absl::Duration self_evict_after = absl::Seconds(1);  // without a master for this long
    size_t max_waiters = 4'096;                          // puts; more are refused at once
  };
  RoomKeeper(ChunkStore& chunks, Clock& clock, Options options);

  // How long there has been no master; and how to ask it for room. Set before the first put.
  void SetMaster(std::function<absl::Duration()> alone_for,
                 std::function<void(uint64_t bytes, uint64_t extent_bytes)> need_bytes);

  // Called with what BeginPut found missing. True: something was freed, try again at once.
  bool MakeRoom(const RoomNeeded& needed);
  // Runs `retry` once, from the maintenance thread, when it is worth trying again. False: too many
  // wait already.
  bool Wait(absl::AnyInvocable<void()> retry);

  // The maintenance thread's tick: evicts below the reserve, wakes waiters.
  void Tick();
  bool has_waiters() const { return waiter_count() != 0; }
  size_t waiter_count() const;

 private:
  ChunkStore& chunks_;
  Clock& clock_;
  const Options options_;
  std::function<absl::Duration()> alone_for_;
  std::function<void(uint64_t, uint64_t)> need_bytes_;
  mutable Mutex mutex_;
  std::vector<absl::AnyInvocable<void()>> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_ROOM_KEEPER_H_
