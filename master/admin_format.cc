#include "master/admin_format.h"

#include <algorithm>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/cause_name.h"
#include "base/string_view.h"
#include "master/namespaces.h"

namespace cistern::master {
namespace {

constexpr const char* kWires[] = {"tcp", "shm", "rdma", "fake"};
constexpr size_t kMostWhyBytes = 300;

std::string HexOf(const std::string& bytes) { return absl::BytesToHexString(bytes); }

std::string Address(const wire::Endpoint& endpoint) {
  const bool v6 = endpoint.host().find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", endpoint.host(), "]:", endpoint.port())
            : absl::StrCat(endpoint.host(), ":", endpoint.port());
}

std::string NamespaceOptionsText(const wire::NamespaceOptions& options) {
  std::vector<std::string> words;
  if (options.mutable_chunks()) words.push_back("mutable");
  if (options.keep_keys()) words.push_back("keep_keys");
  if (options.digest_set() && options.digest() == wire::DIGEST_NONE) words.push_back("no digest");
  return absl::StrJoin(words, ", ");
}

void AddTier(const admin::TierStats& tier, admin::TierStats* sum) {
  sum->set_tier(tier.tier());
  sum->set_capacity_bytes(sum->capacity_bytes() + tier.capacity_bytes());
  sum->set_used_bytes(sum->used_bytes() + tier.used_bytes());
  sum->set_payload_bytes(sum->payload_bytes() + tier.payload_bytes());
  sum->set_chunk_count(sum->chunk_count() + tier.chunk_count());
  sum->set_largest_free_extent_bytes(
      std::max(sum->largest_free_extent_bytes(), tier.largest_free_extent_bytes()));
  sum->set_oldest_age_s(std::max(sum->oldest_age_s(), tier.oldest_age_s()));
  sum->set_header_count(sum->header_count() + tier.header_count());
  sum->set_headers_used(sum->headers_used() + tier.headers_used());
  sum->set_fill(sum->capacity_bytes() == 0 ? 0
                                           : static_cast<double>(sum->used_bytes()) /
                                                 static_cast<double>(sum->capacity_bytes()));
}

bool IsEviction(int cause) {
  return cause == wire::CAUSE_EVICT_WATERMARK || cause == wire::CAUSE_EVICT_ASKED ||
         cause == wire::CAUSE_EVICT_SELF || cause == wire::CAUSE_EVICT_ADMIN ||
         cause == wire::CAUSE_EXPIRED;
}

}  // namespace

std::string TierNames(uint32_t mask) {
  std::vector<std::string> names;
  if (mask & wire::TIER_DRAM) names.push_back("dram");
  if (mask & wire::TIER_SSD) names.push_back("ssd");
  if (mask & wire::TIER_COLD) names.push_back("cold");
  return absl::StrJoin(names, "+");
}

void FormatTier(const wire::TierUsage& usage, admin::TierStats* out) {
  out->set_tier(TierNames(usage.tier()));
  out->set_capacity_bytes(usage.capacity_bytes());
  out->set_used_bytes(usage.used_bytes());
  out->set_payload_bytes(usage.payload_bytes());
  out->set_chunk_count(usage.chunk_count());
  out->set_largest_free_extent_bytes(usage.largest_free_extent_bytes());
  out->set_oldest_age_s(usage.oldest_age_s());
  out->set_header_count(usage.header_count());
  out->set_headers_used(usage.headers_used());
  out->set_fill(usage.capacity_bytes() == 0 ? 0
                                            : static_cast<double>(usage.used_bytes()) /
                                                  static_cast<double>(usage.capacity_bytes()));
}

void FormatStore(const StoreView& store, admin::StoreStats* out) {
  out->set_index(store.index.value);
  out->set_store_id(store.id.ToHex());
  out->set_name(store.name);
  out->set_state(StoreStateName(store.state));
  out->set_software_version(store.software_version);
  bool shm = false;
  bool rdma = false;
  for (const wire::Endpoint& endpoint : store.endpoints) {
    out->add_endpoints(Address(endpoint));
    shm = shm || !endpoint.socket_path().empty();
    rdma = rdma || endpoint.rdma_port() != 0;
    if (!endpoint.no_rdma().empty()) out->set_no_rdma(endpoint.no_rdma().substr(0, kMostWhyBytes));
  }
  if (!store.endpoints.empty()) out->add_wires("tcp");
  if (shm) out->add_wires("shm");
  if (rdma) out->add_wires("rdma");
  for (const wire::TierUsage& tier : store.heartbeat.tiers()) FormatTier(tier, out->add_tiers());
  const wire::StoreCounters& counters = store.heartbeat.counters();
  out->set_get_hits(counters.get_hits());
  out->set_get_misses(counters.get_misses());
  out->set_get_bytes(counters.get_bytes());
  out->set_put_chunks(counters.put_chunks());
  out->set_put_bytes(counters.put_bytes());
  out->set_put_present(counters.put_present());
  out->set_put_refused(counters.put_refused());
  out->set_verify_failures(counters.verify_failures());
  out->set_connections(counters.connections());
  out->set_inflight_bytes(counters.inflight_bytes());
  out->set_protocol_errors(counters.protocol_errors());
  for (int cause = 0; cause < counters.removed_by_cause_size(); ++cause) {
    if (const uint64_t n = counters.removed_by_cause(cause); n != 0) {
      (*out->mutable_removed_by_cause())[CauseName(cause)] = n;
    }
  }
  const int pairs = std::min<int>(counters.bytes_by_wire_size() / 2, std::size(kWires));
  for (int wire = 0; wire < pairs; ++wire) {
    const uint64_t in = counters.bytes_by_wire(2 * wire);
    const uint64_t sent = counters.bytes_by_wire(2 * wire + 1);
    if (in == 0 && sent == 0) continue;
    (*out->mutable_bytes_by_wire())[absl::StrCat(kWires[wire], "_in")] = in;
    (*out->mutable_bytes_by_wire())[absl::StrCat(kWires[wire], "_out")] = sent;
  }
  const int wires = std::min<int>(counters.connections_by_wire_size(), std::size(kWires));
  for (int wire = 0; wire < wires; ++wire) {
    const uint64_t n = counters.connections_by_wire(wire);
    if (n != 0) (*out->mutable_connections_by_wire())[kWires[wire]] = n;
  }
  out->set_uptime_ms(store.heartbeat.uptime_ms());
  out->set_leased_bytes(store.leased_bytes);
  out->set_lease_limit_bytes(store.lease_limit_bytes);
}

void FormatNamespace(const NamespaceView& ns, admin::NamespaceStats* out) {
  const wire::NamespaceOptions& options = ns.info.options();
  out->set_id(HexOf(ns.info.id()));
  out->set_name(ns.info.name());
  out->set_fingerprint(PrintableFingerprint(ns.info.fingerprint()));
  out->set_chunk_count(ns.chunk_count);
  out->set_payload_bytes(ns.payload_bytes);
  out->set_conflict(ns.info.conflict());
  out->set_options(NamespaceOptionsText(options));
  out->set_part_bytes(options.part_bytes());
  out->set_ttl_ms(options.ttl_ms());
  out->set_verify(options.verify() == wire::VERIFY_OFF       ? "off"
                  : options.verify() == wire::VERIFY_SAMPLED ? "sampled"
                                                             : "always");
  out->set_lookup_keys(ns.counters.lookup_keys);
  out->set_lookup_hits(ns.counters.lookup_hits);
  out->set_put_chunks(ns.counters.put_chunks);
  out->set_put_bytes(ns.counters.put_bytes);
  out->set_evicted_chunks(ns.counters.evicted_chunks);
}

void FormatSegment(const std::string& store, const wire::SegmentInfo& segment,
                   admin::SegmentStats* out) {
  out->set_store(store);
  out->set_segment_id(HexOf(segment.segment_id()));
  out->set_tier(TierNames(segment.tier()));
  out->set_bytes(segment.bytes());
  out->set_allocatable_bytes(segment.allocatable_bytes());
  out->set_free_bytes(segment.free_bytes());
  out->set_largest_free_extent_bytes(segment.largest_free_extent_bytes());
  out->set_header_count(segment.header_count());
  out->set_headers_used(segment.headers_used());
  out->set_path(segment.path());
  out->set_persistent(segment.persistent());
  out->set_name(segment.name());
  out->set_state(segment.unmounting() ? "unmounting" : "mounted");
  out->set_huge_pages(segment.huge_pages());
  out->set_huge_bytes(segment.huge_bytes());
}

void FormatPool(const PoolView& pool, const std::vector<StoreView>& stores, admin::PoolStats* out) {
  const PoolCounters& counters = pool.counters;
  out->set_epoch(pool.epoch.value);
  out->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(pool.uptime)));
  out->set_chunk_count(pool.chunk_count);
  out->set_lookups(counters.lookups);
  out->set_lookup_keys(counters.lookup_keys);
  out->set_lookup_hits(counters.lookup_hits);
  out->set_miss_absent(counters.miss_absent);
  out->set_miss_evicted(counters.miss_evicted);
  out->set_miss_dead_store(counters.miss_dead_store);
  out->set_places(counters.places);
  out->set_place_present(counters.place_present);
  out->set_place_in_progress(counters.place_in_progress);
  out->set_place_refused(counters.place_refused);
  out->set_active_leases(pool.active_leases);
  out->set_leased_bytes(pool.leased_bytes);
  out->set_lease_refused(counters.lease_refused);
  out->set_lease_limit_bytes(pool.lease_limit_bytes);
  out->set_in_progress_puts(pool.in_progress_puts);
  out->set_exists_calls(counters.exists_calls);
  out->set_removes(counters.removes);
  out->set_index_bytes(pool.index_bytes);
  for (size_t cause = 0; cause < counters.removed_by_cause.size(); ++cause) {
    const uint64_t n = counters.removed_by_cause[cause];
    if (n == 0 || !IsEviction(static_cast<int>(cause))) continue;
    (*out->mutable_evictions_by_cause())[CauseName(static_cast<int>(cause))] = n;
  }
  std::map<uint32_t, admin::TierStats> sums;  // by tier bit: DRAM first
  for (const StoreView& store : stores) {
    if (store.state != StoreState::kServing && store.state != StoreState::kSyncing) continue;
    for (const wire::TierUsage& usage : store.heartbeat.tiers()) {
      admin::TierStats tier;
      FormatTier(usage, &tier);
      AddTier(tier, &sums[usage.tier()]);
    }
  }
  for (auto& [bit, sum] : sums) *out->add_tiers() = std::move(sum);
}

void FormatHoldTimes(const HoldTimes& times, admin::PoolStats* out) {
  out->set_longest_lock_hold_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(times.longest)));
  out->set_longest_lock_hold_cpu_ns(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(times.longest_cpu)));
  size_t used = times.by_log2.size();
  while (used > 0 && times.by_log2[used - 1] == 0) --used;
  for (size_t i = 0; i < used; ++i) out->add_lock_holds_by_log2_ns(times.by_log2[i]);
}

void FormatChunk(const ChunkView& chunk, const ChunkNames& names, admin::ChunkInfo* out) {
  const auto name_in = [](const absl::flat_hash_map<uint32_t, std::string>& map, uint32_t number) {
    const auto it = map.find(number);
    return it == map.end() ? absl::StrCat("#", number) : it->second;
  };
  out->set_id(chunk.id.ToHex());
  out->set_shard(chunk.shard.value);
  out->set_length(chunk.length);
  out->set_namespace_name(name_in(names.namespaces, chunk.ns.value));
  for (const ChunkView::Replica& replica : chunk.replicas) {
    admin::ChunkInfo::Replica* r = out->add_replicas();
    r->set_store(name_in(names.stores, replica.store.value));
    r->set_store_index(replica.store.value);
    r->set_tiers(TierNames(replica.tiers));
    r->set_version(replica.version.value);
    r->set_serving(replica.serving);
  }
  out->set_lease_left_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(chunk.lease_left)));
  out->set_pinned(chunk.pinned);
  out->set_touched(chunk.touched);
  out->set_expiry_unix_s(chunk.expiry_unix_s);
}

}  // namespace cistern::master
