#include "master/metrics.h"

#include "absl/status/status.h"
#include "base/cause_name.h"
#include "base/ops/daemon_metrics.h"
#include "proto/store.pb.h"

namespace cistern::master {
namespace {

using enum MetricType;

constexpr MetricInfo kTable[] = {
    CISTERN_BUILD_INFO_METRIC("cistern_master"),
    {"cistern_master_uptime_seconds", kGauge, "", "time since the master started"},
    {"cistern_master_epoch", kGauge, "", "fencing number; one more at each start"},
    {"cistern_master_state_saved", kGauge, "",
     "1; 0 while durable state (namespaces, the epoch) cannot be written: a full disk"},
    {"cistern_master_stores", kGauge, "state",
     "stores that have joined, by state: serving, syncing (its snapshot is coming in), suspect "
     "(silent), dead"},
    {"cistern_master_sessions", kGauge, "", "streams of stores, those in the handshake included"},
    {"cistern_master_sessions_opened_total", kCounter, "", "sessions that were opened"},
    {"cistern_master_sessions_closed_total", kCounter, "", "sessions that have ended"},
    {"cistern_master_session_handshake_failures_total", kCounter, "",
     "streams that ended before a store had proved itself and said hello"},
    {"cistern_master_snapshots_total", kCounter, "event", "stores' snapshots: begun, completed"},
    {"cistern_master_records_applied_total", kCounter, "", "records of stores' sessions applied"},
    {"cistern_master_records_refused_total", kCounter, "",
     "records that the index could not take: full, or too many replicas"},
    {"cistern_master_chunks", kGauge, "", "chunks in the index"},
    {"cistern_master_max_chunks", kGauge, "", "chunks that the index takes (max_chunks)"},
    {"cistern_master_payload_bytes", kGauge, "", "sum of the chunks' lengths"},
    {"cistern_master_index_bytes", kGauge, "", "memory of the index and its rings"},
    {"cistern_master_sweeps", kGauge, "", "passes over the index that wait or run"},
    {"cistern_master_capacity_bytes", kGauge, "tier", "allocatable bytes of the stores not dead"},
    {"cistern_master_used_bytes", kGauge, "tier", "bytes of extents in them, as the index has it"},
    {"cistern_master_tier_chunks", kGauge, "tier", "replicas in them"},
    {"cistern_master_evicting_bytes", kGauge, "tier", "told to go and not yet reported gone"},
    {"cistern_master_placed_bytes", kGauge, "", "placed in stores and not yet reported"},
    {"cistern_master_lookups_total", kCounter, "", "lookup calls"},
    {"cistern_master_lookup_keys_total", kCounter, "result",
     "keys looked up: hit; or why not: absent (never put, removed, or gone long ago), evicted "
     "lately, dead_store (its only store does not serve)"},
    {"cistern_master_exists_calls_total", kCounter, "", "existence checks, which lease nothing"},
    {"cistern_master_places_total", kCounter, "", "place calls"},
    {"cistern_master_place_chunks_total", kCounter, "result",
     "chunks of place calls: placed, present, in_progress (another client is putting it), refused"},
    {"cistern_master_place_refused_total", kCounter, "reason",
     "chunks refused: no_store serves with room, no_room (what is held cannot go yet), table_full "
     "(max_in_progress)"},
    {"cistern_master_removes_total", kCounter, "", "remove calls"},
    {"cistern_master_pending_removals", kGauge, "", "removals that wait for stores' reports"},
    {"cistern_master_in_progress_puts", kGauge, "", "chunks placed and not yet reported"},
    {"cistern_master_leases", kGauge, "", "leases that live"},
    {"cistern_master_leased_bytes", kGauge, "", "bytes under them, counted once a lease"},
    {"cistern_master_lease_limit_bytes", kGauge, "",
     "bytes that leases may hold in the stores that serve (lease_share)"},
    {"cistern_master_leases_shortened_total", kCounter, "",
     "lookups whose lease covered less than asked for, or nothing"},
    {"cistern_master_removed_chunks_total", kCounter, "cause",
     "replicas gone, by what the stores gave as cause"},
    {"cistern_master_namespaces", kGauge, "", "namespaces seen since the start"},
    {"cistern_master_namespace_chunks", kGauge, "namespace",
     "chunks; the namespaces beyond the first 100 are summed up as (other)"},
    {"cistern_master_namespace_payload_bytes", kGauge, "namespace", "sum of the chunks' lengths"},
    {"cistern_master_namespace_lookup_keys_total", kCounter, "namespace,result",
     "keys looked up: hit, miss"},
    {"cistern_master_namespace_put_chunks_total", kCounter, "namespace", "chunks put"},
    {"cistern_master_namespace_put_bytes_total", kCounter, "namespace", "bytes put"},
    {"cistern_master_namespace_evicted_chunks_total", kCounter, "namespace", "chunks evicted"},
    {"cistern_master_call_seconds", kHistogram, "call,code",
     "clients' calls, from the request's arrival to the answer; code is absl's"},
    CISTERN_CLIENT_METRICS("cistern_master"),
};

void FillPool(const PoolNumbers& numbers, MetricsPage* page) {
  const PoolView& pool = numbers.pool;
  const PoolCounters& counters = pool.counters;
  page->Add("cistern_master_uptime_seconds", pool.uptime);
  page->Add("cistern_master_epoch", pool.epoch.value);
  for (size_t s = 0; s < numbers.stores_by_state.size(); ++s) {
    page->Add("cistern_master_stores", {{"state", StoreStateName(static_cast<StoreState>(s))}},
              numbers.stores_by_state[s]);
  }
  page->Add("cistern_master_sessions_opened_total", counters.sessions_opened);
  page->Add("cistern_master_sessions_closed_total", counters.sessions_closed);
  page->Add("cistern_master_snapshots_total", {{"event", "begun"}}, counters.snapshots_begun);
  page->Add("cistern_master_snapshots_total", {{"event", "completed"}},
            counters.snapshots_completed);
  page->Add("cistern_master_records_applied_total", counters.records_applied);
  page->Add("cistern_master_records_refused_total", counters.records_refused);
  page->Add("cistern_master_chunks", pool.chunk_count);
  page->Add("cistern_master_max_chunks", numbers.max_chunks);
  page->Add("cistern_master_payload_bytes", pool.payload_bytes);
  page->Add("cistern_master_index_bytes", pool.index_bytes);
  page->Add("cistern_master_sweeps", numbers.sweeps);
  page->Add("cistern_master_placed_bytes", numbers.placed_bytes);
  page->Add("cistern_master_pending_removals", uint64_t{pool.pending_removals});
  page->Add("cistern_master_in_progress_puts", uint64_t{pool.in_progress_puts});
  page->Add("cistern_master_leases", uint64_t{pool.active_leases});
  page->Add("cistern_master_leased_bytes", pool.leased_bytes);
  page->Add("cistern_master_lease_limit_bytes", pool.lease_limit_bytes);
  constexpr const char* kTiers[kTierCount] = {"dram", "ssd", "cold"};
  for (int t = 0; t < kTierCount; ++t) {
    const PoolNumbers::Tier& tier = numbers.tiers[t];
    page->Add("cistern_master_capacity_bytes", {{"tier", kTiers[t]}}, tier.capacity_bytes);
    page->Add("cistern_master_used_bytes", {{"tier", kTiers[t]}}, tier.used_bytes);
    page->Add("cistern_master_tier_chunks", {{"tier", kTiers[t]}}, tier.chunks);
    page->Add("cistern_master_evicting_bytes", {{"tier", kTiers[t]}}, tier.evicting_bytes);
  }
}

void FillCounters(const PoolCounters& counters, MetricsPage* page) {
  page->Add("cistern_master_lookups_total", counters.lookups);
  const auto keys = [&](const char* result, uint64_t n) {
    page->Add("cistern_master_lookup_keys_total", {{"result", result}}, n);
  };
  keys("hit", counters.lookup_hits);
  keys("absent", counters.miss_absent);
  keys("evicted", counters.miss_evicted);
  keys("dead_store", counters.miss_dead_store);
  page->Add("cistern_master_exists_calls_total", counters.exists_calls);
  page->Add("cistern_master_places_total", counters.places);
  const auto placed = [&](const char* result, uint64_t n) {
    page->Add("cistern_master_place_chunks_total", {{"result", result}}, n);
  };
  placed("placed", counters.place_placed);
  placed("present", counters.place_present);
  placed("in_progress", counters.place_in_progress);
  placed("refused", counters.place_refused);
  for (size_t r = 0; r < counters.place_refused_by.size(); ++r) {
    page->Add("cistern_master_place_refused_total",
              {{"reason", PlaceRefusalName(static_cast<PlaceRefusal>(r))}},
              counters.place_refused_by[r]);
  }
  page->Add("cistern_master_removes_total", counters.removes);
  page->Add("cistern_master_leases_shortened_total", counters.lease_refused);
  // Chunks do not go because of a put or because nothing happened.
  for (int cause = wire::CAUSE_EVICT_WATERMARK;
       cause < static_cast<int>(counters.removed_by_cause.size()); ++cause) {
    if (!wire::Cause_IsValid(cause)) continue;
    page->Add("cistern_master_removed_chunks_total", {{"cause", CauseName(cause)}},
              counters.removed_by_cause[static_cast<size_t>(cause)]);
  }
}

void FillNamespace(std::string_view name, const NamespaceView& ns, MetricsPage* page) {
  const NamespaceCounters& counters = ns.counters;
  page->Add("cistern_master_namespace_chunks", {{"namespace", name}}, ns.chunk_count);
  page->Add("cistern_master_namespace_payload_bytes", {{"namespace", name}}, ns.payload_bytes);
  page->Add("cistern_master_namespace_lookup_keys_total", {{"namespace", name}, {"result", "hit"}},
            counters.lookup_hits);
  page->Add("cistern_master_namespace_lookup_keys_total", {{"namespace", name}, {"result", "miss"}},
            counters.lookup_keys - counters.lookup_hits);
  page->Add("cistern_master_namespace_put_chunks_total", {{"namespace", name}},
            counters.put_chunks);
  page->Add("cistern_master_namespace_put_bytes_total", {{"namespace", name}}, counters.put_bytes);
  page->Add("cistern_master_namespace_evicted_chunks_total", {{"namespace", name}},
            counters.evicted_chunks);
}

void FillWire(const MasterObservation& seen, MetricsPage* page) {
  for (const transport::CallMeter::Series& series : seen.calls) {
    const std::string code = absl::StatusCodeToString(series.code);
    page->Add("cistern_master_call_seconds", {{"call", series.call}, {"code", code}},
              series.seconds);
  }
  FillClients("cistern_master", seen.calls_in_progress, seen.clients, page);
  FillWireBytes("cistern_master", "tcp", seen.clients.bytes_in, seen.clients.bytes_out, page);
}

}  // namespace

absl::Span<const MetricInfo> MasterMetrics() { return kTable; }

std::vector<transport::CallName> MasterCallNames() {
  using transport::FrameType;
  return {{FrameType::kLookup, "lookup"},   {FrameType::kExists, "exists"},
          {FrameType::kPlace, "place"},     {FrameType::kRemove, "remove"},
          {FrameType::kRelease, "release"}, {FrameType::kOpenNamespace, "open_namespace"}};
}

void FillMasterMetrics(const MasterObservation& seen, MetricsPage* page) {
  FillBuildInfo("cistern_master", page);
  page->Add("cistern_master_state_saved", seen.state_saved ? 1.0 : 0.0);
  page->Add("cistern_master_sessions", seen.sessions);
  page->Add("cistern_master_session_handshake_failures_total", seen.session_handshake_failures);
  FillPool(seen.numbers, page);
  FillCounters(seen.numbers.pool.counters, page);
  page->Add("cistern_master_namespaces", seen.numbers.namespaces);
  for (const NamespaceView& ns : seen.namespaces) FillNamespace(ns.info.name(), ns, page);
  // Always there, so that the metrics are, whatever the pool holds.
  FillNamespace("(other)", seen.other_namespaces, page);
  FillWire(seen, page);
}

}  // namespace cistern::master
