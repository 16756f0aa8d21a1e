// What this client has put a moment ago: the master may not have heard of it yet.
//
// A store reports a put within milliseconds of acknowledging it. Until then only whoever put the
// chunk knows of it, and must not be told that it is not there.
#ifndef CISTERN_CLIENT_FRESH_PUTS_H_
#define CISTERN_CLIENT_FRESH_PUTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "client/placement_cache.h"

namespace cistern {

// Bounded: kMost chunks, the latest. Thread-safe.
class FreshPuts {
 public:
  // Well beyond the 2 ms in which lookups see a put, also where a pool has many stores.
  static constexpr absl::Duration kTime = absl::Milliseconds(50);
  // How soon the master is asked again about them.
  static constexpr absl::Duration kAskAgain = absl::Milliseconds(1);
  static constexpr size_t kMost = 16'384;

  // `store` has acknowledged it, or said that it has it.
  void Add(const ChunkName& name, LocalStore store, MonoTime now) {
    last_ns_.store(Ns(now), std::memory_order_relaxed);
    MutexLock lock(mutex_);
    DropOld(now);
    if (order_.size() == kMost) DropFirst();
    const uint64_t serial = next_serial_++;
    puts_[name] = {store, now, serial};
    order_.push_back({name, serial, now});
  }
  // Where it was put; kNone: it was not put in the last kTime. Takes no lock where nothing was.
  LocalStore Find(const ChunkName& name, MonoTime now) const {
    if (!Any(now)) return LocalStore(LocalStore::kNone);
    MutexLock lock(mutex_);
    const auto found = puts_.find(name);
    if (found == puts_.end() || now - found->second.at >= kTime) {
      return LocalStore(LocalStore::kNone);
    }
    return found->second.store;
  }
  bool Any(MonoTime now) const {
    return Ns(now) - last_ns_.load(std::memory_order_relaxed) < absl::ToInt64Nanoseconds(kTime);
  }
  // It was removed.
  void Drop(const ChunkName& name) {
    MutexLock lock(mutex_);
    puts_.erase(name);
  }
  void Clear() {
    MutexLock lock(mutex_);
    puts_.clear();
    order_.clear();
  }

 private:
  struct Put {
    LocalStore store;
    MonoTime at;
    uint64_t serial = 0;
  };
  struct Turn {
    ChunkName name;
    uint64_t serial = 0;
    MonoTime at;
  };

  static int64_t Ns(MonoTime t) { return absl::ToInt64Nanoseconds(t.since_origin); }
  void DropOld(MonoTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (!order_.empty() && now - order_.front().at >= kTime) DropFirst();
  }
  void DropFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = puts_.find(order_.front().name);
    // One that was put again has a later turn.
    if (found != puts_.end() && found->second.serial == order_.front().serial) puts_.erase(found);
    order_.pop_front();
  }

  std::atomic<int64_t> last_ns_{std::numeric_limits<int64_t>::min() / 2};
  mutable Mutex mutex_;
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<ChunkName, Put> puts_ ABSL_GUARDED_BY(mutex_);
  std::deque<Turn> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_FRESH_PUTS_H_
