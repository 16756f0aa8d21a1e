// Where the stores' messages are worked off: one thread, a slice of each in turn.
#ifndef CISTERN_MASTER_RECORD_WORKER_H_
#define CISTERN_MASTER_RECORD_WORKER_H_

#include <deque>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/busy_watch.h"
#include "base/mutex.h"
#include "master/core_driver.h"
#include "master/session_call.h"
#include "master/types.h"
#include "proto/store.pb.h"

namespace cistern::master {

// Promise: whatever the stores send, it waits here for the core and not on gRPC's threads, which
// have to answer everybody else on their port; and a message waits for at most one slice of each
// other one, however long those are. It is one thread, since the core has one lock.
// Role: SessionService adds, at most one message a stream. Thread-safe. Borrows the driver.
class RecordWorker {
 public:
  // Called on the worker's thread, without a lock.
  using Done = absl::AnyInvocable<void(const absl::Status&)>;

  explicit RecordWorker(CoreDriver& driver);
  ~RecordWorker();  // works off what is there

  // Applies the message; `done` follows with SessionCall's status. `message` stays until then.
  void Add(SessionId session, const wire::StoreMessage& message, Done done);
  // How long the slice in hand has lasted: long when the thread hangs, or waits for the core's
  // lock.
  absl::Duration busy_for() const { return busy_.BusyFor(driver_.clock().Mono()); }

 private:
  struct Job {
    SessionCall call;
    Done done;
  };
  void Loop();

  CoreDriver& driver_;
  BusyWatch busy_;
  Mutex mutex_;
  CondVar added_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_RECORD_WORKER_H_
