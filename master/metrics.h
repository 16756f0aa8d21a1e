// The master's metrics: docs/metrics.md shows the table.
#ifndef CISTERN_MASTER_METRICS_H_
#define CISTERN_MASTER_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/ops/metrics.h"
#include "master/admin_views.h"
#include "transport/call_meter.h"
#include "transport/server.h"

namespace cistern::master {

absl::Span<const MetricInfo> MasterMetrics();

// Calls that are timed under a name of their own.
std::vector<transport::CallName> MasterCallNames();

// How many namespaces have series of their own: those that came first. The rest is summed up as
// "(other)", so that a tenant cannot flood whoever collects.
inline constexpr size_t kMetricNamespaces = 100;

// Everything that one page is made of.
struct MasterObservation {
  PoolNumbers numbers;
  std::vector<NamespaceView> namespaces;  // at most kMetricNamespaces
  NamespaceView other_namespaces;         // sums
  std::vector<transport::CallMeter::Series> calls;
  uint64_t calls_in_progress = 0;
  transport::ServerStats clients;
  bool state_saved = true;
  uint64_t sessions = 0;
  uint64_t session_handshake_failures = 0;
};

// A page with a value for every metric of the table.
void FillMasterMetrics(const MasterObservation& seen, MetricsPage* page);

}  // namespace cistern::master

#endif  // CISTERN_MASTER_METRICS_H_
