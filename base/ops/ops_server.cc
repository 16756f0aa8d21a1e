#include "base/ops/ops_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ops/metrics.h"
#include "base/status.h"

namespace cistern {

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(Options options) {
  std::unique_ptr<OpsServer> server(new OpsServer(std::move(options.name)));
  HttpServer::Options http;
  http.address = std::move(options.address);
  http.port = options.port;
  http.clock = options.clock;
  http.handler = [raw = server.get()](const std::string& path) { return raw->Answer(path); };
  CISTERN_ASSIGN_OR_RETURN(server->http_, HttpServer::Start(std::move(http)));
  return server;
}

HttpResponse OpsServer::Answer(const std::string& path) {
  OpsSource* const source = source_.load(std::memory_order_acquire);
  HttpResponse response;
  if (path == "/") {
    response.body = absl::StrCat(name_, "\n/metrics\n/healthz\n/livez\n");
    return response;
  }
  if (path != "/metrics" && path != "/healthz" && path != "/livez") {
    response.status = 404;
    response.body = "there are /metrics, /healthz and /livez\n";
    return response;
  }
  if (path == "/metrics") {
    if (source == nullptr) {
      response.status = 503;
      response.body = "starting\n";
      return response;
    }
    response.content_type = kMetricsContentType;
    response.body = source->GetMetrics();
    return response;
  }
  Health health;
  health.json = "{\"status\":\"starting\"}";
  if (source != nullptr) health = source->GetHealth();
  response.content_type = "application/json";
  response.status = (path == "/healthz" ? health.ready : health.alive) ? 200 : 503;
  response.body = health.json + "\n";
  return response;
}

std::string HostAndPort(const std::string& host, uint16_t port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

}  // namespace cistern
