// Mounts and unmounts segments of a running store, as an administrator asks through the master.
//
// Mount:    1. the manifest says "mounting"        killed here or in 2: a restart removes the file
//           2. the file is made, every page backed by memory
//           3. the manifest says "mounted"         durable from here on
//           4. puts go there
// Unmount:  1. puts no longer go there             killed here: nothing has happened
//           2. the manifest says "unmounting"      from here on a restart ends it: the file is
//           removed
//           3. chunks are evicted (their records say so); what is being read or written is waited
//           for
//           4. the file is removed, then the mapping: the memory is the system's again
//           5. the manifest forgets it, or says "unmounted" of one that the configuration names
#ifndef CISTERN_STORE_SEGMENT_MANAGER_H_
#define CISTERN_STORE_SEGMENT_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "proto/store.pb.h"
#include "store/chunk_store.h"
#include "store/segment_manifest.h"
#include "store/segment_set.h"

namespace cistern::store {

// Owns one thread, on which everything happens: making gigabytes takes seconds. Thread-safe.
// Borrows the store and the clock.
class SegmentManager {
 public:
  static constexpr size_t kMaxQueued = 64;  // commands, and answers not taken yet

  struct Options {
    SegmentPlace place;
    std::vector<SegmentSpec> configured;
    HugePages huge_pages = HugePages::kNever;  // of a mount that says nothing
    // Records were appended, or an answer is there: the session should look.
    std::function<void()> poke;
  };
  SegmentManager(Options options, SegmentManifest manifest, ChunkStore& chunks, Clock& clock);
  ~SegmentManager();  // stops

  void Start();
  // Joins. A mount under way is undone, an unmount under way is ended by the next start.
  // Idempotent.
  void Stop();

  // Never blocks. Each is answered once, see TakeDone.
  void Execute(const wire::SegmentCommand& command);
  // The next answer; nullopt: none is there.
  std::optional<wire::SegmentDone> TakeDone();

 private:
  // An unmount, and who waits for it.
  struct Drain {
    SegmentId id;
    SegmentSpec spec;
    wire::SegmentInfo info;
    uint64_t chunks = 0;
    uint64_t bytes = 0;
    struct Waiter {
      uint64_t command = 0;
      MonoTime until;
    };
    std::vector<Waiter> waiters;
  };

  void Run();
  bool stopping() const;
  void Mount(uint64_t command, const wire::SegmentCommand::Mount& mount);
  absl::StatusOr<SegmentSpec> SpecOf(const wire::SegmentCommand::Mount& mount) const;
  absl::Status MountNew(const SegmentSpec& spec);
  void Unmount(const wire::SegmentCommand& command);
  void Cancel(uint64_t command, const wire::SegmentInfo& info);
  // True when it is over.
  bool Step(Drain* drain);
  absl::Status Finish(Drain* drain);

  void Answer(uint64_t command, const absl::Status& status, const wire::SegmentInfo* info,
              const Drain* drain);
  absl::StatusOr<wire::SegmentInfo> FindInfo(const std::string& name_or_id) const;
  absl::Status SetInManifest(SegmentManifest::State state, const SegmentSpec& spec);
  absl::Status ForgetInManifest(const SegmentSpec& spec);

  const Options options_;
  absl::flat_hash_set<std::string> configured_names_;
  ChunkStore& chunks_;
  Clock& clock_;
  // The thread's own.
  SegmentManifest manifest_;
  std::vector<std::unique_ptr<Drain>> drains_;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<wire::SegmentCommand> commands_ ABSL_GUARDED_BY(mutex_);
  std::deque<wire::SegmentDone> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_SEGMENT_MANAGER_H_
