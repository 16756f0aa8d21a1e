// One message of a store's session, worked off in slices like the clients' calls (see calls.h):
//
//   SessionCall call(session, message);       // borrows the message
//   while (true) { MutexLock lock(mutex); if (call.Step(core, now)) break; }
//
// A status that is not OK ends the session: the shell closes the stream and calls
// MasterCore::OnSessionClosed.
#ifndef CISTERN_MASTER_SESSION_CALL_H_
#define CISTERN_MASTER_SESSION_CALL_H_

#include <cstddef>

#include "absl/status/status.h"
#include "base/clock.h"
#include "master/types.h"
#include "proto/store.pb.h"

namespace cistern::master {

class MasterCore;
struct PoolState;
struct Store;

class SessionCall {
 public:
  SessionCall(SessionId session, const wire::StoreMessage& message)
      : session_(session), message_(message) {}
  // True when the message is worked off; see status().
  bool Step(MasterCore& core, MonoTime now);
  const absl::Status& status() const { return status_; }

 private:
  // A step of what the store asks for; true when there is no other.
  bool GiveBytes(PoolState& pool, Store& store, MonoTime now);

  const SessionId session_;
  const wire::StoreMessage& message_;
  absl::Status status_;
  size_t next_record_ = 0;
  bool applied_ = false;       // what it says is; what follows from that has steps of its own
  uint64_t wanted_bytes_ = 0;  // of a NeedBytes
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_SESSION_CALL_H_
