// The master as a process has it, without flags and signals: tests run it too.
#ifndef CISTERN_MASTER_MASTER_DAEMON_H_
#define CISTERN_MASTER_MASTER_DAEMON_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ids.h"
#include "proto/config.pb.h"

namespace cistern::master {

// Promise: once Start has returned, clients and stores are served on both ports, under an epoch
// that is on disk. Role: main() and tests own one. Thread-safe. Threads: io_threads for clients,
// one ticker, one that waits to write durable state, and gRPC's own.
class MasterDaemon {
 public:
  struct Options {
    config::MasterConfig config;  // checked: see settings.h
    std::string token;            // empty = none
    Clock* clock = &Clock::Real();
    // The master must stop: another one of a higher epoch has taken the pool over. Any thread.
    std::function<void(const absl::Status&)> on_fatal;
  };
  // FailedPrecondition: the folder is in use, or is no pool's. Unavailable: a port is in use.
  static absl::StatusOr<std::unique_ptr<MasterDaemon>> Start(Options options);
  virtual ~MasterDaemon() = default;  // stops

  virtual uint16_t data_port() const = 0;
  virtual uint16_t grpc_port() const = 0;
  virtual uint16_t http_port() const = 0;  // 0 = none
  virtual PoolId pool_id() const = 0;
  virtual Epoch epoch() = 0;
  // For endpoints.json: docs/formats/endpoints.md.
  virtual std::string EndpointsJson() = 0;
  // Whether its threads come round; waits some seconds for one that does not.
  virtual bool Alive() = 0;
  // One line for people.
  virtual std::string StatusLine() = 0;
  // Takes nothing new, lets calls in progress end (for stop_grace at most), tells the stores, saves
  // what is queued. Idempotent.
  virtual void Stop() = 0;
  // Stop() waits for no calls, also when it runs already. Any thread.
  virtual void Hurry() = 0;
};

}  // namespace cistern::master

#endif  // CISTERN_MASTER_MASTER_DAEMON_H_
