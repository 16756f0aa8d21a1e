// A store's metrics: docs/metrics.md shows the table.
#ifndef CISTERN_STORE_METRICS_H_
#define CISTERN_STORE_METRICS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ops/metrics.h"
#include "proto/store.pb.h"
#include "store/chunk_store.h"
#include "store/record_log.h"
#include "store/session_client.h"
#include "transport/call_meter.h"
#include "transport/server.h"

namespace cistern::store {

absl::Span<const MetricInfo> StoreMetrics();

// Calls that are timed under a name of their own.
std::vector<transport::CallName> StoreCallNames();

// How many namespaces have series of their own: those that came first. The rest is summed up as
// "(other)", so that a tenant cannot flood whoever collects.
inline constexpr size_t kMetricNamespaces = 100;

// Everything that one page is made of.
struct StoreObservation {
  absl::Duration uptime;
  std::vector<wire::TierUsage> tiers;
  std::vector<wire::SegmentInfo> segments;
  wire::StoreCounters counters;  // bytes_by_wire included
  PutOutcomes puts;
  RecoveryReport recovery;
  uint32_t namespace_count = 0;
  std::vector<NamespaceNumbers> namespaces;  // at most kMetricNamespaces
  NamespaceNumbers other_namespaces;         // sums
  SessionClient::Numbers session;
  RecordLog::Range records;
  uint64_t waiting_puts = 0;
  uint64_t background_tasks = 0;
  absl::Duration since_maintenance;
  std::vector<transport::CallMeter::Series> calls;
  uint64_t calls_in_progress = 0;
  transport::ServerStats clients;
};

// A page with a value for every metric of the table.
void FillStoreMetrics(const StoreObservation& seen, MetricsPage* page);

}  // namespace cistern::store

#endif  // CISTERN_STORE_METRICS_H_
