// A whole store: segments, chunk store, data port, session and upkeep, wired and owned.
#ifndef CISTERN_STORE_DAEMON_H_
#define CISTERN_STORE_DAEMON_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/config.pb.h"

namespace cistern::store {

class StoreDaemon {
 public:
  // Cross-field rules that the schema cannot express: InvalidArgument.
  static absl::Status CheckConfig(const config::StoreConfig& config);

  // Opens the folder and the segments, recovers, listens and starts the session. A store that has
  // never met its pool waits for the master first, until `stop` says so.
  // FailedPrecondition, ResourceExhausted, Unavailable: it cannot start; the message says what to
  // do.
  static absl::StatusOr<std::unique_ptr<StoreDaemon>> Start(const config::StoreConfig& config,
                                                            Clock& clock,
                                                            const std::function<bool()>& stop);
  virtual ~StoreDaemon() = default;

  virtual uint16_t data_port() const = 0;
  virtual uint16_t http_port() const = 0;  // 0 = none
  virtual std::string endpoints_json() const = 0;
  // Whether its threads come round; waits some seconds for one that does not.
  virtual bool Alive() = 0;
  // One line for people.
  virtual std::string StatusLine() = 0;
  // Takes nothing new, ends the session, lets calls in progress end (for stop_grace at most), ends
  // connections, then lets go of segments (committed chunks stay in file segments). Idempotent; the
  // destructor calls it.
  virtual void Stop() = 0;
  // Stop() waits for no calls, also when it runs already. Any thread.
  virtual void Hurry() = 0;
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_DAEMON_H_
