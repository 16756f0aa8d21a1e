#include "store/metrics.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/cause_name.h"
#include "base/ops/daemon_metrics.h"

namespace cistern::store {
namespace {

using enum MetricType;

constexpr MetricInfo kTable[] = {
    CISTERN_BUILD_INFO_METRIC("cistern_store"),
    {"cistern_store_uptime_seconds", kGauge, "", "time since the store started"},
    {"cistern_store_in_session", kGauge, "", "1 while in session with the master, else 0"},
    {"cistern_store_epoch", kGauge, "", "highest epoch of a master seen"},
    {"cistern_store_sessions_total", kCounter, "", "sessions opened"},
    {"cistern_store_snapshots_total", kCounter, "event",
     "snapshots for the master: begun, completed"},
    {"cistern_store_records_total", kCounter, "", "records made for the master"},
    {"cistern_store_records_acked_total", kCounter, "",
     "records that the master has, or that a snapshot contains"},
    {"cistern_store_records_backlog", kGauge, "", "records kept because they are not acknowledged"},
    {"cistern_store_records_dropped_total", kCounter, "",
     "records lost to overflow before they were acknowledged: the master gets a snapshot"},
    {"cistern_store_capacity_bytes", kGauge, "tier", "allocatable bytes"},
    {"cistern_store_used_bytes", kGauge, "tier", "bytes of extents, uncommitted ones included"},
    {"cistern_store_committed_bytes", kGauge, "tier", "bytes of extents of committed chunks"},
    {"cistern_store_payload_bytes", kGauge, "tier", "sum of the chunks' lengths"},
    {"cistern_store_chunks", kGauge, "tier", "committed chunks"},
    {"cistern_store_largest_free_extent_bytes", kGauge, "tier",
     "the largest chunk that fits without an eviction"},
    {"cistern_store_oldest_chunk_age_seconds", kGauge, "tier", "age of the chunk next to go"},
    {"cistern_store_segment_bytes", kGauge, "segment,tier", "whole segment, tables included"},
    {"cistern_store_segment_allocatable_bytes", kGauge, "segment,tier", "behind the tables"},
    {"cistern_store_segment_free_bytes", kGauge, "segment,tier", "of these, free"},
    {"cistern_store_segment_largest_free_extent_bytes", kGauge, "segment,tier",
     "free in one piece"},
    {"cistern_store_segment_headers", kGauge, "segment,tier", "headers: the most chunks it holds"},
    {"cistern_store_segment_headers_used", kGauge, "segment,tier", "of these, in use"},
    {"cistern_store_inflight_bytes", kGauge, "", "extents of puts that are not committed yet"},
    {"cistern_store_get_chunks_total", kCounter, "result", "chunks asked for: hit, miss"},
    {"cistern_store_get_bytes_total", kCounter, "", "bytes of chunks served, digests included"},
    {"cistern_store_put_chunks_total", kCounter, "result",
     "chunks put: committed, present (no bytes were needed), refused, corrupt (the bytes did not "
     "match the digests that came with them)"},
    {"cistern_store_put_bytes_total", kCounter, "", "bytes of chunks committed"},
    {"cistern_store_put_refused_total", kCounter, "reason",
     "chunks refused: no_room, headers (ran out before bytes), inflight (max_inflight), too_large "
     "(for any segment)"},
    {"cistern_store_waiting_puts", kGauge, "", "puts that wait for room"},
    {"cistern_store_verify_failures_total", kCounter, "",
     "stored chunks that did not match their digests, dropped"},
    {"cistern_store_removed_chunks_total", kCounter, "cause", "chunks gone, by cause"},
    {"cistern_store_recovered_chunks", kGauge, "", "chunks found in the segments at the start"},
    {"cistern_store_recovered_bytes", kGauge, "", "bytes of them"},
    {"cistern_store_recovery_dropped_chunks", kGauge, "reason",
     "headers dropped at the start: writing (a put that never ended), damaged, overlapping, "
     "duplicate, orphaned (unknown namespace), expired"},
    {"cistern_store_namespaces", kGauge, "", "namespaces seen since the start"},
    {"cistern_store_namespace_chunks", kGauge, "namespace",
     "chunks; the namespaces beyond the first 100 are summed up as (other)"},
    {"cistern_store_namespace_payload_bytes", kGauge, "namespace", "sum of the chunks' lengths"},
    {"cistern_store_background_tasks", kGauge, "", "checks that wait for a background thread"},
    {"cistern_store_background_idle_seconds", kGauge, "",
     "time since the background thread last came round; beyond 10 the store counts as hung"},
    {"cistern_store_call_seconds", kHistogram, "call,code",
     "clients' calls, from the request's arrival until the answer has left, payload included; code "
     "is absl's"},
    CISTERN_CLIENT_METRICS("cistern_store"),
};

std::string TierName(wire::Tier tier) {
  switch (tier) {
    case wire::TIER_DRAM:
      return "dram";
    case wire::TIER_SSD:
      return "ssd";
    case wire::TIER_COLD:
      return "cold";
    default:
      return "none";
  }
}

void FillSession(const StoreObservation& seen, MetricsPage* page) {
  page->Add("cistern_store_in_session", uint64_t{seen.session.in_session});
  page->Add("cistern_store_epoch", seen.session.epoch);
  page->Add("cistern_store_sessions_total", seen.session.sessions);
  page->Add("cistern_store_snapshots_total", {{"event", "begun"}}, seen.session.snapshots_begun);
  page->Add("cistern_store_snapshots_total", {{"event", "completed"}}, seen.session.snapshots_sent);
  // Sequence numbers count up from 1.
  page->Add("cistern_store_records_total", seen.records.next - 1);
  page->Add("cistern_store_records_acked_total",
            seen.records.first - 1 -
                std::min<uint64_t>(seen.records.first - 1, seen.counters.records_dropped()));
  page->Add("cistern_store_records_backlog", seen.records.next - seen.records.first);
  page->Add("cistern_store_records_dropped_total", uint64_t{seen.counters.records_dropped()});
}

void FillMemory(const StoreObservation& seen, MetricsPage* page) {
  for (const wire::TierUsage& usage : seen.tiers) {
    const std::string tier = TierName(usage.tier());
    const auto add = [&](const char* name, uint64_t value) {
      page->Add(name, {{"tier", tier}}, value);
    };
    add("cistern_store_capacity_bytes", usage.capacity_bytes());
    add("cistern_store_used_bytes", usage.used_bytes());
    add("cistern_store_committed_bytes", usage.committed_bytes());
    add("cistern_store_payload_bytes", usage.payload_bytes());
    add("cistern_store_chunks", usage.chunk_count());
    add("cistern_store_largest_free_extent_bytes", usage.largest_free_extent_bytes());
    add("cistern_store_oldest_chunk_age_seconds", usage.oldest_age_s());
  }
  for (size_t i = 0; i < seen.segments.size(); ++i) {
    const wire::SegmentInfo& segment = seen.segments[i];
    const std::string number = absl::StrCat(i);
    const std::string tier = TierName(segment.tier());
    const auto add = [&](const char* name, uint64_t value) {
      page->Add(name, {{"segment", number}, {"tier", tier}}, value);
    };
    add("cistern_store_segment_bytes", segment.bytes());
    add("cistern_store_segment_allocatable_bytes", segment.allocatable_bytes());
    add("cistern_store_segment_free_bytes", segment.free_bytes());
    add("cistern_store_segment_largest_free_extent_bytes", segment.largest_free_extent_bytes());
    add("cistern_store_segment_headers", segment.header_count());
    add("cistern_store_segment_headers_used", segment.headers_used());
  }
  page->Add("cistern_store_inflight_bytes", uint64_t{seen.counters.inflight_bytes()});
}

void FillChunks(const StoreObservation& seen, MetricsPage* page) {
  const wire::StoreCounters& counters = seen.counters;
  page->Add("cistern_store_get_chunks_total", {{"result", "hit"}}, uint64_t{counters.get_hits()});
  page->Add("cistern_store_get_chunks_total", {{"result", "miss"}},
            uint64_t{counters.get_misses()});
  page->Add("cistern_store_get_bytes_total", uint64_t{counters.get_bytes()});
  const auto put = [&](const char* result, uint64_t n) {
    page->Add("cistern_store_put_chunks_total", {{"result", result}}, n);
  };
  put("committed", counters.put_chunks());
  put("present", counters.put_present());
  put("refused", counters.put_refused());
  put("corrupt", seen.puts.corrupt);
  page->Add("cistern_store_put_bytes_total", uint64_t{counters.put_bytes()});
  for (size_t r = 1; r < seen.puts.refused_by.size(); ++r) {
    page->Add("cistern_store_put_refused_total",
              {{"reason", PutRefusalName(static_cast<PutRefusal>(r))}}, seen.puts.refused_by[r]);
  }
  page->Add("cistern_store_waiting_puts", seen.waiting_puts);
  page->Add("cistern_store_verify_failures_total", uint64_t{counters.verify_failures()});
  // Chunks do not go because of a put or because nothing happened.
  for (int cause = wire::CAUSE_EVICT_WATERMARK; cause < counters.removed_by_cause_size(); ++cause) {
    if (!wire::Cause_IsValid(cause)) continue;
    page->Add("cistern_store_removed_chunks_total", {{"cause", CauseName(cause)}},
              uint64_t{counters.removed_by_cause(cause)});
  }
  const RecoveryReport& recovery = seen.recovery;
  page->Add("cistern_store_recovered_chunks", recovery.recovered_chunks);
  page->Add("cistern_store_recovered_bytes", recovery.recovered_bytes);
  const auto dropped = [&](const char* reason, uint64_t n) {
    page->Add("cistern_store_recovery_dropped_chunks", {{"reason", reason}}, n);
  };
  dropped("writing", recovery.writing);
  dropped("damaged", recovery.damaged);
  dropped("overlapping", recovery.overlapping);
  dropped("duplicate", recovery.duplicate);
  dropped("orphaned", recovery.orphaned);
  dropped("expired", recovery.expired);
}

void FillNamespace(std::string_view name, const NamespaceNumbers& ns, MetricsPage* page) {
  page->Add("cistern_store_namespace_chunks", {{"namespace", name}}, ns.chunk_count);
  page->Add("cistern_store_namespace_payload_bytes", {{"namespace", name}}, ns.payload_bytes);
}

void FillWires(const StoreObservation& seen, MetricsPage* page) {
  for (const transport::CallMeter::Series& series : seen.calls) {
    const std::string code = absl::StatusCodeToString(series.code);
    page->Add("cistern_store_call_seconds", {{"call", series.call}, {"code", code}},
              series.seconds);
  }
  FillClients("cistern_store", seen.calls_in_progress, seen.clients, page);
  // The order of StoreCounters.bytes_by_wire.
  constexpr const char* kWires[] = {"tcp", "shm", "rdma", "fake"};
  const int wires = std::min<int>(seen.counters.bytes_by_wire_size() / 2, std::size(kWires));
  for (int w = 0; w < wires; ++w) {
    FillWireBytes("cistern_store", kWires[w], seen.counters.bytes_by_wire(2 * w),
                  seen.counters.bytes_by_wire(2 * w + 1), page);
  }
}

}  // namespace

absl::Span<const MetricInfo> StoreMetrics() { return kTable; }

std::vector<transport::CallName> StoreCallNames() {
  using transport::FrameType;
  return {{FrameType::kGet, "get"},
          {FrameType::kPut, "put"},
          {FrameType::kBindNamespace, "bind_namespace"},
          {FrameType::kReportBad, "report_bad"}};
}

void FillStoreMetrics(const StoreObservation& seen, MetricsPage* page) {
  FillBuildInfo("cistern_store", page);
  page->Add("cistern_store_uptime_seconds", seen.uptime);
  FillSession(seen, page);
  FillMemory(seen, page);
  FillChunks(seen, page);
  page->Add("cistern_store_namespaces", uint64_t{seen.namespace_count});
  for (const NamespaceNumbers& ns : seen.namespaces) FillNamespace(ns.name, ns, page);
  // Always there, so that the metrics are, whatever the store holds.
  FillNamespace("(other)", seen.other_namespaces, page);
  page->Add("cistern_store_background_tasks", seen.background_tasks);
  page->Add("cistern_store_background_idle_seconds", seen.since_maintenance);
  FillWires(seen, page);
}

}  // namespace cistern::store
