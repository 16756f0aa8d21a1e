// Stores that failed a moment ago, so that the next call does not run into the same wall.
#ifndef CISTERN_CLIENT_AVOID_LIST_H_
#define CISTERN_CLIENT_AVOID_LIST_H_

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/placement_cache.h"

namespace cistern {

// Thread-safe. Bounded by the number of stores.
class AvoidList {
 public:
  static constexpr absl::Duration kTime = absl::Seconds(1);

  void Add(LocalStore store, MonoTime now) {
    MutexLock lock(mutex_);
    until_[store.value] = now + kTime;
  }
  bool Contains(LocalStore store, MonoTime now) {
    MutexLock lock(mutex_);
    const auto found = until_.find(store.value);
    if (found == until_.end()) return false;
    if (now < found->second) return true;
    until_.erase(found);
    return false;
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<uint16_t, MonoTime> until_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_AVOID_LIST_H_
