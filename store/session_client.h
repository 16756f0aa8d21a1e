// Keeps the store in session with its master: dials, runs StoreSession over the stream, dials
// again.
#ifndef CISTERN_STORE_SESSION_CLIENT_H_
#define CISTERN_STORE_SESSION_CLIENT_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/store_session.h"
#include "transport/identity.h"

namespace cistern::store {

class SessionStream;

// Owns one thread. Thread-safe.
class SessionClient {
 public:
  // Borrows everything. `session` is used by this object's thread alone from Start() to Stop().
  SessionClient(std::string master_address, StoreSession& session, Clock& clock);
  ~SessionClient();  // stops

  void Start();
  // Ends the session and joins the thread. Idempotent.
  void Stop();

  // There are new records: they leave within the session's flush delay.
  void Poke();
  // Asks the master for victims.
  void NeedBytes(uint64_t bytes, uint64_t extent_bytes);

  bool in_session() const;
  struct Numbers {
    bool in_session = false;
    uint64_t epoch = 0;     // the highest seen
    uint64_t sessions = 0;  // opened so far
    uint64_t snapshots_begun = 0;
    uint64_t snapshots_sent = 0;  // to their end
  };
  Numbers numbers() const;
  // How long there has been no session; zero while there is one.
  absl::Duration alone_for() const;

 private:
  void Run();
  absl::Status RunStream(SessionStream& stream);
  void Publish() ABSL_LOCKS_EXCLUDED(mutex_);
  // False: stop was asked.
  bool WaitUntil(MonoTime when) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string master_address_;
  StoreSession& session_;
  Clock& clock_;
  std::minstd_rand jitter_;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool in_session_ ABSL_GUARDED_BY(mutex_) = false;
  Numbers numbers_ ABSL_GUARDED_BY(mutex_);
  MonoTime alone_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t need_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t need_extent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Asks the master at `address` which pool it serves, proving the token both ways. For a store that
// starts for the first time. Unavailable / DeadlineExceeded / PermissionDenied.
absl::StatusOr<PoolId> FetchPoolId(const std::string& address,
                                   const transport::LocalIdentity& identity, Clock& clock,
                                   absl::Duration timeout);

}  // namespace cistern::store

#endif  // CISTERN_STORE_SESSION_CLIENT_H_
