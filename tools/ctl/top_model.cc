#include "tools/ctl/top_model.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cistern::ctl {
namespace {

constexpr std::pair<TopSort, const char*> kSorts[] = {
    {TopSort::kName, "name"},           {TopSort::kFill, "fill"}, {TopSort::kPuts, "puts"},
    {TopSort::kGets, "gets"},           {TopSort::kHits, "hits"}, {TopSort::kBytes, "bytes"},
    {TopSort::kEvictions, "evictions"},
};

// `restarted`: what was before is of another process.
Rate RateOf(uint64_t before, uint64_t now, double seconds, bool restarted = false) {
  if (seconds <= 0) return std::nullopt;
  const uint64_t grown = restarted || now < before ? now : now - before;
  return static_cast<double>(grown) / seconds;
}

std::optional<double> Share(const Rate& part, const Rate& other_part) {
  if (!part.has_value() || !other_part.has_value() || *part + *other_part <= 0) return std::nullopt;
  return *part / (*part + *other_part);
}

Rate Sum(const Rate& a, const Rate& b) {
  if (!a.has_value()) return b;
  return b.has_value() ? *a + *b : *a;
}

using Counts = google::protobuf::Map<std::string, uint64_t>;

uint64_t CountIn(const Counts& counts, const std::string& key) {
  const auto it = counts.find(key);
  return it == counts.end() ? 0 : it->second;
}

std::map<std::string, double> RatesOf(const Counts& before, const Counts& now, double seconds,
                                      bool restarted) {
  std::map<std::string, double> out;
  for (const auto& [key, count] : now) {
    const Rate rate = RateOf(CountIn(before, key), count, seconds, restarted);
    if (rate.has_value() && *rate > 0) out[key] = *rate;
  }
  return out;
}

// Over all wires: "tcp_in", "shm_in", ...
uint64_t WireBytes(const admin::StoreStats& store, const std::string& direction) {
  uint64_t sum = 0;
  for (const auto& [wire, bytes] : store.bytes_by_wire()) {
    const size_t cut = wire.rfind('_');
    if (cut != std::string::npos && wire.substr(cut + 1) == direction) sum += bytes;
  }
  return sum;
}

void CopyLevels(const admin::StoreStats& now, TopStore* out) {
  out->id = now.store_id();
  out->name = now.name();
  out->state = now.state();
  out->used_bytes = out->capacity_bytes = out->largest_free_bytes = out->chunks = 0;
  for (const admin::TierStats& tier : now.tiers()) {
    out->used_bytes += tier.used_bytes();
    out->capacity_bytes += tier.capacity_bytes();
    out->chunks += tier.chunk_count();
    out->largest_free_bytes = std::max(out->largest_free_bytes, tier.largest_free_extent_bytes());
  }
  out->fill = out->capacity_bytes == 0
                  ? 0
                  : static_cast<double>(out->used_bytes) / static_cast<double>(out->capacity_bytes);
  out->connections = now.connections();
  out->inflight_bytes = now.inflight_bytes();
  out->leased_bytes = now.leased_bytes();
  out->lease_limit_bytes = now.lease_limit_bytes();
}

double SortValue(const TopStore& store, TopSort sort) {
  switch (sort) {
    case TopSort::kName:
      return 0;
    case TopSort::kFill:
      return store.fill;
    case TopSort::kPuts:
      return store.puts.value_or(-1);
    case TopSort::kGets:
      return store.gets.value_or(-1);
    case TopSort::kHits:
      return store.hit_share.value_or(-1);
    case TopSort::kBytes:
      return store.bytes_in.value_or(-1) + store.bytes_out.value_or(-1);
    case TopSort::kEvictions:
      return store.evictions.value_or(-1);
  }
  return 0;
}

double SortValue(const TopNamespace& ns, TopSort sort) {
  switch (sort) {
    case TopSort::kName:
      return 0;
    case TopSort::kFill:
      return static_cast<double>(ns.payload_bytes);
    case TopSort::kPuts:
      return ns.puts.value_or(-1);
    case TopSort::kGets:
      return ns.lookup_keys.value_or(-1);
    case TopSort::kHits:
      return ns.hit_share.value_or(-1);
    case TopSort::kBytes:
      return ns.put_bytes.value_or(-1);
    case TopSort::kEvictions:
      return ns.evictions.value_or(-1);
  }
  return 0;
}

template <typename Row>
void SortRows(std::vector<Row>& rows, TopSort sort) {
  std::sort(rows.begin(), rows.end(), [sort](const Row& a, const Row& b) {
    const double left = -SortValue(a, sort);
    const double right = -SortValue(b, sort);
    return std::tie(left, a.name) < std::tie(right, b.name);
  });
}

}  // namespace

const char* TopSortName(TopSort sort) {
  for (const auto& [known, name] : kSorts) {
    if (known == sort) return name;
  }
  return "";
}

std::optional<TopSort> ParseTopSort(const std::string& name) {
  for (const auto& [sort, known] : kSorts) {
    if (name == known) return sort;
  }
  return std::nullopt;
}

TopSort NextTopSort(TopSort sort) {
  const size_t at = static_cast<size_t>(sort);
  return kSorts[(at + 1) % std::size(kSorts)].first;
}

void TopModel::Update(const admin::StatsReply& reply) {
  bool restarted = false;
  double seconds = 0;
  if (last_.has_value()) {
    const uint64_t before = last_->pool().uptime_ms();
    const uint64_t now = reply.pool().uptime_ms();
    restarted = now < before || reply.pool().epoch() != last_->pool().epoch();
    seconds = static_cast<double>(restarted ? now : now - before) / 1000;
  }
  if (restarted) {
    show_restart_ = kShowRestart;
    restarted_from_ = last_->pool().epoch();
  }
  const admin::PoolStats none;
  if (restarted) last_->mutable_pool()->CopyFrom(none);
  UpdatePool(reply.pool(), seconds);
  view_.restarted_from.reset();
  if (show_restart_ > 0) {
    --show_restart_;
    view_.restarted_from = restarted_from_;
  }

  view_.stores.clear();
  view_.puts = view_.gets = view_.put_bytes = view_.get_bytes = std::nullopt;
  for (const admin::StoreStats& store : reply.stores()) {
    TopStore row = MakeStore(store);
    view_.puts = Sum(view_.puts, row.puts);
    view_.gets = Sum(view_.gets, row.gets);
    view_.put_bytes = Sum(view_.put_bytes, row.put_bytes);
    view_.get_bytes = Sum(view_.get_bytes, row.get_bytes);
    view_.stores.push_back(std::move(row));
  }
  view_.namespaces.clear();
  for (const admin::NamespaceStats& ns : reply.namespaces()) {
    view_.namespaces.push_back(MakeNamespace(ns, seconds, restarted));
  }
  last_namespaces_.clear();
  for (const admin::NamespaceStats& ns : reply.namespaces()) last_namespaces_[ns.id()] = ns;
  last_ = reply;
}

void TopModel::UpdatePool(const admin::PoolStats& now, double seconds) {
  static const admin::PoolStats kNone;
  const admin::PoolStats& before = last_.has_value() ? last_->pool() : kNone;
  const auto rate = [&](uint64_t was, uint64_t is) { return RateOf(was, is, seconds); };
  view_.epoch = now.epoch();
  view_.uptime = absl::Milliseconds(static_cast<int64_t>(now.uptime_ms()));
  view_.chunks = now.chunk_count();
  view_.used_bytes = view_.capacity_bytes = 0;
  for (const admin::TierStats& tier : now.tiers()) {
    view_.used_bytes += tier.used_bytes();
    view_.capacity_bytes += tier.capacity_bytes();
  }
  view_.leases = now.active_leases();
  view_.leased_bytes = now.leased_bytes();
  view_.lease_limit_bytes = now.lease_limit_bytes();
  view_.connections = now.client_connections();
  view_.in_progress_puts = now.in_progress_puts();
  view_.lookups = rate(before.lookups(), now.lookups());
  view_.lookup_keys = rate(before.lookup_keys(), now.lookup_keys());
  const Rate hits = rate(before.lookup_hits(), now.lookup_hits());
  const Rate misses =
      rate(before.lookup_keys() - before.lookup_hits(), now.lookup_keys() - now.lookup_hits());
  view_.hit_share = Share(hits, misses);
  view_.miss_absent = rate(before.miss_absent(), now.miss_absent());
  view_.miss_evicted = rate(before.miss_evicted(), now.miss_evicted());
  view_.miss_dead_store = rate(before.miss_dead_store(), now.miss_dead_store());
  view_.places = rate(before.places(), now.places());
  view_.place_refused = rate(before.place_refused(), now.place_refused());
  view_.evictions_by_cause =
      RatesOf(before.evictions_by_cause(), now.evictions_by_cause(), seconds, false);
}

TopStore TopModel::MakeStore(const admin::StoreStats& now) {
  TopStore row;
  const auto known = last_stores_.find(now.store_id());
  if (now.state() == "dead" || now.uptime_ms() == 0) {
    // Its last heartbeat is old, or has not come yet: its rates are not known.
    CopyLevels(now, &row);
    last_stores_.erase(now.store_id());
    shown_stores_.erase(now.store_id());
    return row;
  }
  if (known != last_stores_.end() && known->second.uptime_ms() == now.uptime_ms()) {
    row = shown_stores_[now.store_id()];
    CopyLevels(now, &row);
    return row;
  }
  CopyLevels(now, &row);
  if (known != last_stores_.end()) {
    const admin::StoreStats& before = known->second;
    const bool restarted = now.uptime_ms() < before.uptime_ms();
    const double seconds =
        static_cast<double>(restarted ? now.uptime_ms() : now.uptime_ms() - before.uptime_ms()) /
        1000;
    const auto rate = [&](uint64_t was, uint64_t is) {
      return RateOf(was, is, seconds, restarted);
    };
    row.puts = rate(before.put_chunks(), now.put_chunks());
    row.put_bytes = rate(before.put_bytes(), now.put_bytes());
    const Rate hits = rate(before.get_hits(), now.get_hits());
    const Rate misses = rate(before.get_misses(), now.get_misses());
    row.gets = Sum(hits, misses);
    row.hit_share = Share(hits, misses);
    row.get_bytes = rate(before.get_bytes(), now.get_bytes());
    row.bytes_in = rate(WireBytes(before, "in"), WireBytes(now, "in"));
    row.bytes_out = rate(WireBytes(before, "out"), WireBytes(now, "out"));
    row.evictions_by_cause =
        RatesOf(before.removed_by_cause(), now.removed_by_cause(), seconds, restarted);
    row.evictions = 0;
    for (const auto& [cause, per_second] : row.evictions_by_cause) *row.evictions += per_second;
  }
  last_stores_[now.store_id()] = now;
  shown_stores_[now.store_id()] = row;
  return row;
}

TopNamespace TopModel::MakeNamespace(const admin::NamespaceStats& now, double seconds,
                                     bool restarted) {
  TopNamespace row;
  row.name = now.name();
  row.chunks = now.chunk_count();
  row.payload_bytes = now.payload_bytes();
  if (!last_.has_value()) return row;
  // One that was opened since the last answer began at zero.
  static const admin::NamespaceStats kNone;
  const auto known = last_namespaces_.find(now.id());
  const admin::NamespaceStats& before = known == last_namespaces_.end() ? kNone : known->second;
  const auto rate = [&](uint64_t was, uint64_t is) { return RateOf(was, is, seconds, restarted); };
  row.lookup_keys = rate(before.lookup_keys(), now.lookup_keys());
  row.hit_share = Share(
      rate(before.lookup_hits(), now.lookup_hits()),
      rate(before.lookup_keys() - before.lookup_hits(), now.lookup_keys() - now.lookup_hits()));
  row.puts = rate(before.put_chunks(), now.put_chunks());
  row.put_bytes = rate(before.put_bytes(), now.put_bytes());
  row.evictions = rate(before.evicted_chunks(), now.evicted_chunks());
  return row;
}

void TopModel::Sort(TopSort sort) {
  SortRows(view_.stores, sort);
  SortRows(view_.namespaces, sort);
}

}  // namespace cistern::ctl
