// Metrics that both daemons have, each under its own name.
#ifndef CISTERN_BASE_OPS_DAEMON_METRICS_H_
#define CISTERN_BASE_OPS_DAEMON_METRICS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/ops/metrics.h"
#include "base/string_view.h"
#include "base/version.h"

// Rows of a daemon's table: clients' connections, whatever the wire. A macro, since names are made
// at compile time. `prefix` is a literal: "cistern_store".
#define CISTERN_CLIENT_METRICS(prefix)                                                          \
  {prefix "_calls_in_progress", MetricType::kGauge, "",                                         \
   "clients' calls that are not answered yet"},                                                 \
      {prefix "_connections", MetricType::kGauge, "", "clients' connections"},                  \
      {prefix "_connections_accepted_total", MetricType::kCounter, "", "connections accepted"}, \
      {prefix "_connections_refused_total", MetricType::kCounter, "",                           \
       "connections refused: more than max_connections, or no descriptors"},                    \
      {prefix "_handshake_failures_total", MetricType::kCounter, "",                            \
       "connections that ended before both sides had proved themselves"},                       \
      {prefix "_protocol_errors_total", MetricType::kCounter, "",                               \
       "connections cut because the peer broke the protocol"},                                  \
      {prefix "_stalled_connections_total", MetricType::kCounter, "",                           \
       "connections cut because a transfer stalled"},                                           \
  {                                                                                             \
    prefix "_wire_bytes_total", MetricType::kCounter, "wire,direction",                         \
        "bytes of clients' connections: in, out"                                                \
  }
#define CISTERN_BUILD_INFO_METRIC(prefix) \
  { prefix "_build_info", MetricType::kGauge, "version,commit,mode", "1; what is running" }

namespace cistern {

inline void FillBuildInfo(const char* prefix, MetricsPage* page) {
  page->Add(absl::StrCat(prefix, "_build_info").c_str(),
            {{"version", SoftwareVersion()},
             {"commit", StdView(CommitId())},
             {"mode", StdView(BuildMode())}},
            uint64_t{1});
}

// `stats` is transport::ServerStats, which base/ does not know.
template <typename Stats>
void FillClients(const char* prefix, uint64_t calls_in_progress, const Stats& stats,
                 MetricsPage* page) {
  const auto add = [&](const char* name, uint64_t value) {
    page->Add(absl::StrCat(prefix, name).c_str(), value);
  };
  add("_calls_in_progress", calls_in_progress);
  add("_connections", stats.connections);
  add("_connections_accepted_total", stats.accepted);
  add("_connections_refused_total", stats.refused);
  add("_handshake_failures_total", stats.handshake_failures);
  add("_protocol_errors_total", stats.protocol_errors);
  add("_stalled_connections_total", stats.stalled);
}
inline void FillWireBytes(const char* prefix, std::string_view wire, uint64_t in, uint64_t out,
                          MetricsPage* page) {
  const std::string name = absl::StrCat(prefix, "_wire_bytes_total");
  page->Add(name.c_str(), {{"wire", wire}, {"direction", "in"}}, in);
  page->Add(name.c_str(), {{"wire", wire}, {"direction", "out"}}, out);
}

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_DAEMON_METRICS_H_
