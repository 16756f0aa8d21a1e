// An administrator's orders to stores about their segments, and who waits for the answers.
#ifndef CISTERN_MASTER_SEGMENT_COMMANDS_H_
#define CISTERN_MASTER_SEGMENT_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "master/core_driver.h"
#include "proto/store.pb.h"

namespace cistern::master {

// Promise: each order ends by its `done`, once: with the store's answer, when its session ends, or
// at its deadline. The store may carry out an order that was given up here; asked again it says so.
// Role: the admin service gives orders, the session service brings answers, the ticker sweeps.
// Thread-safe; `done` runs without a lock held, on any thread. Borrows the driver.
class SegmentCommands {
 public:
  static constexpr size_t kMaxWaiting = 256;

  explicit SegmentCommands(CoreDriver& driver) : driver_(driver) {}

  // `store` is its name, its id in hex, or its number. The status is the store's, or NotFound,
  // InvalidArgument (two stores of that name), FailedPrecondition (no session with it), Aborted
  // (the session ended), ResourceExhausted, DeadlineExceeded; Unavailable when this master stops.
  struct Answer {
    std::string store;  // name
    wire::SegmentDone done;
  };
  using Done = absl::AnyInvocable<void(absl::Status, const Answer&)>;
  void Send(const std::string& store, wire::SegmentCommand command, MonoTime deadline, Done done);

  // A store's answer. One that nobody waits for is dropped.
  void OnAnswer(SessionId session, wire::SegmentDone& answer);
  // Ends those whose time or whose session is over. Every 100 ms or so.
  void Sweep();
  // Ends all, and refuses further ones: the daemon stops.
  void Close();

 private:
  struct Waiting {
    SessionId session;
    std::string store;
    MonoTime deadline;
    Done done;
  };

  CoreDriver& driver_;
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // A command's number has the master's epoch above these 32 bits: a store may still have answers
  // for the master before this one.
  uint32_t next_command_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SEGMENT_COMMANDS_H_
