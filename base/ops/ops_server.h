// A daemon's HTTP port.
//
//   /metrics  Prometheus's text
//   /healthz  200 when the daemon does its whole job, else 503; why, in JSON
//   /livez    200 unless the process hangs and only a restart can help
#ifndef CISTERN_BASE_OPS_OPS_SERVER_H_
#define CISTERN_BASE_OPS_OPS_SERVER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/ops/http_server.h"

namespace cistern {

struct Health {
  bool ready = false;  // does its whole job
  bool alive = true;   // its threads come round
  std::string json;    // one object: what /healthz says
};

// Implemented by the daemons. Called on the HTTP thread: takes no lock for long, and none that a
// hanging thread may hold, where it decides about `alive`.
class OpsSource {
 public:
  virtual ~OpsSource() = default;
  virtual Health GetHealth() = 0;
  virtual std::string GetMetrics() = 0;
};

// Says "starting" until it has a source. Thread-safe.
class OpsServer {
 public:
  struct Options {
    std::string name;  // "cistern-master"
    std::string address = "127.0.0.1";
    uint16_t port = 0;
    Clock* clock = &Clock::Real();
  };
  // Errors as of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(Options options);

  uint16_t port() const { return http_->port(); }
  // Borrowed until Stop() has returned.
  void SetSource(OpsSource* source) { source_.store(source, std::memory_order_release); }
  void Stop() { http_->Stop(); }

 private:
  explicit OpsServer(std::string name) : name_(std::move(name)) {}
  HttpResponse Answer(const std::string& path);

  const std::string name_;
  std::atomic<OpsSource*> source_{nullptr};
  std::unique_ptr<HttpServer> http_;
};

// "HOST:PORT", IPv6 in brackets.
std::string HostAndPort(const std::string& host, uint16_t port);

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_OPS_SERVER_H_
