#include "tools/replay/demo_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/ctl/table.h"

namespace cistern::replay {
namespace {

using Json = nlohmann::ordered_json;
using ctl::Bytes;
using ctl::Count;
using ctl::Latency;
using ctl::Percent;
using ctl::Ratio;
using ctl::Table;

// What a caller asked for or the clock brought is no eviction.
constexpr const char* kEvictionCauses[] = {"evict_watermark", "evict_asked", "evict_self",
                                           "evict_admin"};

double Quotient(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double FillOf(const admin::StoreStats& store) {
  uint64_t used = 0;
  uint64_t capacity = 0;
  for (const admin::TierStats& tier : store.tiers()) {
    used += tier.used_bytes();
    capacity += tier.capacity_bytes();
  }
  return Quotient(used, capacity);
}

uint64_t ChunksOf(const admin::StoreStats& store) {
  uint64_t chunks = 0;
  for (const admin::TierStats& tier : store.tiers()) chunks += tier.chunk_count();
  return chunks;
}

Json LatencyJson(const LatencyHistogram& h) {
  return {{"p50", absl::ToDoubleSeconds(h.Percentile(0.5))},
          {"p99", absl::ToDoubleSeconds(h.Percentile(0.99))},
          {"max", absl::ToDoubleSeconds(h.max())}};
}

std::string LatencyText(const LatencyHistogram& h) {
  return absl::StrCat(Latency(h.Percentile(0.5)), " / ", Latency(h.Percentile(0.99)), " / ",
                      Latency(h.max()));
}

std::string Rate(double bytes_per_second) {
  return absl::StrFormat("%.2f GB/s", bytes_per_second / 1e9);
}

std::string CausesText(const admin::PoolStats& pool) {
  std::vector<std::string> parts;
  for (const char* cause : kEvictionCauses) {
    const auto it = pool.evictions_by_cause().find(cause);
    if (it != pool.evictions_by_cause().end() && it->second > 0) {
      parts.push_back(absl::StrCat(cause + sizeof("evict_") - 1, " ", Count(it->second)));
    }
  }
  return parts.empty() ? "" : absl::StrCat(" (", absl::StrJoin(parts, ", "), ")");
}

}  // namespace

void ChunksHeld::Sample(uint64_t requests, uint64_t chunks, uint64_t evictions) {
  if (evicting_ && requests > last_requests_) {
    const uint64_t done = requests - last_requests_;
    // What was held between two samples: the mean of both.
    weighted_ += static_cast<double>(done) *
                 (static_cast<double>(chunks) + static_cast<double>(last_chunks_)) / 2;
    weight_ += done;
  }
  evicting_ = evicting_ || evictions > 0;
  last_requests_ = requests;
  last_chunks_ = chunks;
}

double ChunksHeld::mean() const {
  return weight_ == 0 ? static_cast<double>(last_chunks_)
                      : weighted_ / static_cast<double>(weight_);
}

double Throughput(uint64_t bytes, const LatencyHistogram& calls, uint64_t clients) {
  const double seconds = absl::ToDoubleSeconds(calls.sum());
  return seconds == 0 ? 0 : static_cast<double>(bytes) / seconds * static_cast<double>(clients);
}

uint64_t Evictions(const google::protobuf::Map<std::string, uint64_t>& removed_by_cause) {
  uint64_t sum = 0;
  for (const char* cause : kEvictionCauses) {
    const auto it = removed_by_cause.find(cause);
    if (it != removed_by_cause.end()) sum += it->second;
  }
  return sum;
}

std::string DemoTable(const DemoResult& r) {
  const ReplayCounts& c = r.counts;
  const double saved_s = static_cast<double>(c.prefix_hit_tokens) / r.prefill_tokens_per_second;
  Table table({{""}, {""}});
  const auto row = [&](const std::string& name, const std::string& value) {
    table.AddRow({name, value});
  };
  row("requests", absl::StrFormat("%s by %u clients in %.1f s (%.0f a second)", Count(c.requests),
                                  r.clients, absl::ToDoubleSeconds(r.elapsed),
                                  static_cast<double>(c.requests) /
                                      std::max(1e-9, absl::ToDoubleSeconds(r.elapsed))));
  row("pool", absl::StrCat(Bytes(r.pool_bytes), " in ", r.stats.stores_size(), " stores, for ",
                           Bytes(r.distinct_chunks * r.chunk_bytes), " of distinct chunks of ",
                           Bytes(r.chunk_bytes)));
  row("chunks looked up", Count(c.chunks_looked_up));
  row("  present", Ratio(c.chunk_hits, c.chunks_looked_up));
  row("  in leading runs, got", Ratio(c.prefix_hits, c.chunks_looked_up));
  row("  an exact LRU as large", absl::StrCat(Percent(r.lru_of_mean.prefix_hit_ratio()), " (",
                                              Count(static_cast<uint64_t>(r.mean_chunks_held)),
                                              " chunks, the mean that the pool held)"));
  row("  and one of its bytes",
      absl::StrCat(Percent(r.lru_of_bytes.prefix_hit_ratio()), " (", Count(r.lru_of_bytes_chunks),
                   " chunks, full to halfway between the watermarks)"));
  row("bytes put",
      absl::StrCat(Bytes(c.bytes_put), " at ", Rate(Throughput(c.bytes_put, c.put, r.clients))));
  row("bytes got",
      absl::StrCat(Bytes(c.bytes_got), " at ", Rate(Throughput(c.bytes_got, c.get, r.clients))));
  row("lookup p50 / p99 / max", LatencyText(c.lookup));
  row("put p50 / p99 / max", LatencyText(c.put));
  row("get p50 / p99 / max", LatencyText(c.get));
  row("evictions", absl::StrCat(Count(Evictions(r.stats.pool().evictions_by_cause())),
                                CausesText(r.stats.pool())));
  std::vector<std::string> fills;
  for (const admin::StoreStats& store : r.stats.stores()) fills.push_back(Percent(FillOf(store)));
  row("fill of the stores", absl::StrJoin(fills, ", "));
  row("wire", r.wire);
  row("verification failures", Count(c.verification_failures));
  row("errors", absl::StrCat(Count(c.errors), c.first_error.empty() ? "" : "; the first: ",
                             ctl::Printable(c.first_error)));
  row("PROMPT TOKENS NOT COMPUTED AGAIN",
      absl::StrCat(Count(c.prefix_hit_tokens), " of ", Count(c.prompt_tokens), " (",
                   Ratio(c.prefix_hit_tokens, c.prompt_tokens), ")"));
  row("  seconds of prefill that is",
      absl::StrFormat("%s at %s tokens a second", Count(static_cast<uint64_t>(saved_s)),
                      Count(static_cast<uint64_t>(r.prefill_tokens_per_second))));
  row("built as", absl::StrCat(r.build_mode, ", commit ", r.commit));
  return table.ToString("  ");
}

std::string WiresUsed(const admin::StatsReply& stats) {
  std::set<std::string> wires;
  for (const admin::StoreStats& store : stats.stores()) {
    for (const auto& [name, bytes] : store.bytes_by_wire()) {
      if (bytes > 0) wires.insert(name.substr(0, name.rfind('_')));
    }
  }
  return absl::StrJoin(wires, "+");
}

uint64_t ChunksAtShare(const admin::StatsReply& stats, double share) {
  uint64_t used = 0;
  uint64_t capacity = 0;
  uint64_t chunks = 0;
  for (const admin::StoreStats& store : stats.stores()) {
    for (const admin::TierStats& tier : store.tiers()) {
      used += tier.used_bytes();
      capacity += tier.capacity_bytes();
      chunks += tier.chunk_count();
    }
  }
  return static_cast<uint64_t>(share * static_cast<double>(capacity) * Quotient(chunks, used));
}

std::string DemoJson(const DemoResult& r) {
  const ReplayCounts& c = r.counts;
  Json out;
  out["requests"] = c.requests;
  out["chunks_looked_up"] = c.chunks_looked_up;
  out["chunk_hits"] = c.chunk_hits;
  out["chunk_hit_ratio"] = Quotient(c.chunk_hits, c.chunks_looked_up);
  out["prefix_hit_ratio"] = Quotient(c.prefix_hits, c.chunks_looked_up);
  out["prefix_hit_ratio_tokens"] = Quotient(c.prefix_hit_tokens, c.prompt_tokens);
  out["mean_chunks_held"] = r.mean_chunks_held;
  out["bytes_put"] = c.bytes_put;
  out["bytes_got"] = c.bytes_got;
  out["put_bytes_per_second"] = Throughput(c.bytes_put, c.put, r.clients);
  out["get_bytes_per_second"] = Throughput(c.bytes_got, c.get, r.clients);
  out["verification_failures"] = c.verification_failures;
  out["errors"] = c.errors;
  out["evictions"] = Evictions(r.stats.pool().evictions_by_cause());
  Json stores = Json::array();
  for (const admin::StoreStats& store : r.stats.stores()) {
    stores.push_back({{"fill", FillOf(store)},
                      {"chunks", ChunksOf(store)},
                      {"evictions", Evictions(store.removed_by_cause())}});
  }
  out["stores"] = std::move(stores);
  out["lookup_seconds"] = LatencyJson(c.lookup);
  out["put_seconds"] = LatencyJson(c.put);
  out["get_seconds"] = LatencyJson(c.get);
  out["wire"] = r.wire;
  out["commit"] = r.commit;
  out["build_mode"] = r.build_mode;
  return out.dump(2, ' ', true, Json::error_handler_t::replace);
}

std::vector<std::string> Leaks(const admin::StatsReply& stats,
                               const admin::SegmentsReply& segments) {
  std::vector<std::string> leaks;
  const auto expect_none = [&](uint64_t n, const std::string& what) {
    if (n > 0) leaks.push_back(absl::StrCat(Count(n), " ", what));
  };
  const admin::PoolStats& pool = stats.pool();
  expect_none(pool.chunk_count(), "chunks in the master's index");
  expect_none(pool.active_leases(), "leases");
  expect_none(pool.leased_bytes(), "leased bytes");
  expect_none(pool.in_progress_puts(), "puts in progress");
  expect_none(pool.client_connections(), "client connections to the master");
  for (const admin::StoreStats& store : stats.stores()) {
    const std::string in = absl::StrCat(" in store ", store.name());
    expect_none(ChunksOf(store), "chunks" + in);
    for (const admin::TierStats& tier : store.tiers()) {
      expect_none(tier.used_bytes(), "bytes used" + in);
      expect_none(tier.payload_bytes(), "payload bytes" + in);
      expect_none(tier.headers_used(), "headers used" + in);
    }
    expect_none(store.connections(), absl::StrCat("client connections to store ", store.name()));
    expect_none(store.inflight_bytes(), "bytes in flight" + in);
  }
  for (const admin::SegmentStats& segment : segments.segments()) {
    expect_none(segment.allocatable_bytes() - segment.free_bytes(),
                absl::StrCat("bytes not free in segment ", segment.segment_id()));
    if (segment.largest_free_extent_bytes() != segment.allocatable_bytes()) {
      leaks.push_back(absl::StrCat("free extents of segment ", segment.segment_id(),
                                   " did not grow together again"));
    }
  }
  return leaks;
}

}  // namespace cistern::replay
