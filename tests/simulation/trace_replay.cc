#include "tests/simulation/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/columns.h"
#include "master/pool_state.h"
#include "tests/simulation/sim_cluster.h"
#include "tools/replay/lru_reference.h"

namespace cistern::simulation {
namespace {

KeyId IdOf(uint64_t block) {
  KeyId id;
  const uint64_t words[2] = {replay::Mix64(block + 1), replay::Mix64(~block)};
  std::memcpy(id.bytes.data(), words, sizeof(words));
  return id;
}

StoreIndex StoreAt(const std::string& column, size_t i) {
  StoreIndex store;
  std::memcpy(&store.value, column.data() + 2 * i, 2);
  return store;
}

class Replayer {
 public:
  Replayer(const ReplayOptions& options, SimCluster& cluster, ReplayResult& result)
      : options_(options), cluster_(cluster), result_(result) {}

  void Request(const replay::Request& request) {
    std::vector<KeyId> ids;
    for (const uint64_t block : request.blocks) ids.push_back(IdOf(block));
    const wire::LookupReply found = cluster_.Lookup(ids);
    Get(ids, found);
    Put(ids, found.leading_run());
    ++result_.requests;
    CountHeld();
  }
  void Finish() {
    if (held_samples_ > 0) result_.mean_chunks_held = held_sum_ / held_samples_;
    if (held_samples_ == 0) result_.mean_chunks_held = static_cast<double>(Held());
    if (gets_ > 0) {
      result_.stores_per_get = static_cast<double>(stores_asked_) / static_cast<double>(gets_);
    }
  }

 private:
  void Get(const std::vector<KeyId>& ids, const wire::LookupReply& found) {
    result_.chunks_looked_up += ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      result_.chunk_hits += BitmapGet(found.present(), i);
    }
    std::set<uint16_t> asked;
    bool unbroken = true;
    for (size_t i = 0; i < found.leading_run(); ++i) {
      const StoreIndex index = StoreAt(found.stores(), i);
      SimStore* store = cluster_.StoreOf(index);
      const ChunkName name{ids[i], Shard(0)};
      if (store == nullptr || !store->EverHeld(name)) {
        ++result_.wrong;
        continue;
      }
      asked.insert(index.value);
      unbroken = unbroken && store->Has(name);
      ++(unbroken ? result_.prefix_hits : result_.stale_hits);
    }
    if (!asked.empty()) ++gets_;
    stores_asked_ += asked.size();
    if (options_.release && !found.lease_id().empty()) {
      cluster_.events().After(options_.get_time,
                              [this, lease = found.lease_id()] { cluster_.Release(lease); });
    }
  }

  void Put(const std::vector<KeyId>& ids, size_t first) {
    const size_t from = options_.place_whole_chain ? 0 : first;
    if (first >= ids.size()) return;
    const std::vector<KeyId> chain(ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end());
    const wire::PlaceReply placed = cluster_.Place(chain);
    std::vector<std::pair<StoreIndex, std::vector<KeyId>>> batches;
    for (size_t i = 0; i < chain.size(); ++i) {
      result_.refused += BitmapGet(placed.refused(), i);
      result_.in_progress += BitmapGet(placed.in_progress(), i);
      const StoreIndex store = StoreAt(placed.stores(), i);
      if (store.value == StoreIndex::kNone || BitmapGet(placed.present(), i)) continue;
      if (batches.empty() || batches.back().first != store) batches.push_back({store, {}});
      batches.back().second.push_back(chain[i]);
    }
    for (auto& [store, batch] : batches) {
      cluster_.Put(store, std::move(batch), options_.put_delay);
    }
  }

  uint64_t Held() const {
    uint64_t held = 0;
    for (size_t i = 0; i < cluster_.stores(); ++i) held += cluster_.store(i).chunks().size();
    return held;
  }
  void CountHeld() {
    if (!evicted_) {
      for (size_t i = 0; i < cluster_.stores(); ++i) {
        evicted_ = evicted_ || cluster_.store(i).commanded_evictions() > 0 ||
                   cluster_.store(i).self_evictions() > 0;
      }
    }
    if (!evicted_) return;
    held_sum_ += static_cast<double>(Held());
    ++held_samples_;
  }

  const ReplayOptions& options_;
  SimCluster& cluster_;
  ReplayResult& result_;
  bool evicted_ = false;
  double held_sum_ = 0;
  double held_samples_ = 0;
  uint64_t gets_ = 0;
  uint64_t stores_asked_ = 0;
};

std::string Leaks(SimCluster& cluster) {
  std::string out;
  master::PoolState& pool = cluster.core().pool();
  for (size_t i = 0; i < cluster.stores(); ++i) {
    if (!cluster.store(i).chunks().empty() || cluster.store(i).used_bytes() != 0) {
      absl::StrAppend(&out, cluster.store(i).name(), " still holds ",
                      cluster.store(i).chunks().size(), " chunks\n");
    }
  }
  const master::PoolView view = cluster.core().Pool(cluster.events().now());
  if (view.chunk_count != 0) absl::StrAppend(&out, view.chunk_count, " chunks in the index\n");
  if (view.active_leases != 0 || view.leased_bytes != 0) {
    absl::StrAppend(&out, view.active_leases, " leases, ", view.leased_bytes, " bytes\n");
  }
  if (view.in_progress_puts != 0) absl::StrAppend(&out, view.in_progress_puts, " in progress\n");
  if (view.pending_removals != 0) absl::StrAppend(&out, view.pending_removals, " removals open\n");
  for (const auto& store : pool.stores.all()) {
    const master::SessionCore* session = pool.SessionOf(*store);
    if (session == nullptr || session->open_commands() != 0) {
      absl::StrAppend(&out, store->name, " has commands that are not settled\n");
    }
    if (store->dram().bytes != 0 || store->dram().evicting_bytes != 0 ||
        pool.in_progress.placed_bytes(store->index) != 0) {
      absl::StrAppend(&out, store->name, " is still charged\n");
    }
  }
  return out;
}

}  // namespace

double ReplayResult::max_fill_deviation() const {
  double mean = 0;
  for (const double fill : fills) mean += fill / static_cast<double>(fills.size());
  double worst = 0;
  for (const double fill : fills) worst = std::max(worst, std::abs(fill - mean));
  return worst;
}

ReplayResult ReplayTrace(const replay::Workload& workload, const ReplayOptions& options) {
  ReplayResult result;
  const replay::WorkloadSummary summary = replay::Summarize(workload);
  SimCluster::Options cluster_options;
  cluster_options.stores = options.stores;
  cluster_options.chunk_bytes = options.chunk_bytes;
  cluster_options.seed = options.seed;
  cluster_options.pool_bytes =
      options.pool_bytes != 0
          ? options.pool_bytes
          : RoundUp(summary.distinct_chunks * options.chunk_bytes / 5, uint64_t{1} << 20);
  SimCluster cluster(cluster_options);
  cluster.Run(absl::Seconds(1));
  Replayer replayer(options, cluster, result);
  const MonoTime start = cluster.events().now();
  for (size_t i = 0; i < workload.size(); ++i) {
    const absl::Duration at =
        options.interval > absl::ZeroDuration()
            ? options.interval * static_cast<int64_t>(i)
            : absl::Milliseconds(static_cast<int64_t>(workload[i].timestamp_ms));
    if (start + at > cluster.events().now()) cluster.events().RunUntil(start + at);
    replayer.Request(workload[i]);
  }
  replayer.Finish();
  cluster.Run(absl::Seconds(2));
  uint64_t capacity = 0;
  for (size_t i = 0; i < cluster.stores(); ++i) {
    const SimStore& store = cluster.store(i);
    result.fills.push_back(store.fill());
    result.commanded_evictions += store.commanded_evictions();
    result.self_evictions += store.self_evictions();
    capacity += store.capacity_bytes();
  }
  result.puts_without_room = cluster.puts_without_room();
  result.differences = cluster.Differences();
  const master::MasterOptions defaults;
  const double middle = (defaults.high_watermark + defaults.low_watermark) / 2;
  const auto pool_chunks =
      static_cast<uint64_t>(middle * static_cast<double>(capacity) / options.chunk_bytes);
  result.lru_pool_ratio = replay::ReplayExactLru(workload, pool_chunks).prefix_hit_ratio();
  result.lru_held_ratio =
      replay::ReplayExactLru(workload, static_cast<uint64_t>(std::lround(result.mean_chunks_held)))
          .prefix_hit_ratio();
  cluster.Run(absl::Seconds(11));  // what nobody released or put runs out
  cluster.Remove({}, /*force=*/false, /*all=*/true);
  cluster.Run(absl::Seconds(2));
  result.leaks = Leaks(cluster);
  return result;
}

std::string FormatReplay(const ReplayOptions& options, const ReplayResult& r) {
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    absl::StrAppendFormat(&out, "%-40s %s\n", std::string(name), value);
  };
  line("stores", absl::StrCat(options.stores));
  line("requests", absl::StrCat(r.requests));
  line("chunks looked up", absl::StrCat(r.chunks_looked_up));
  line("prefix_hit_ratio", absl::StrFormat("%.4f", r.prefix_hit_ratio()));
  line("exact LRU of mean_chunks_held", absl::StrFormat("%.4f", r.lru_held_ratio));
  line("exact LRU of pool x middle watermark", absl::StrFormat("%.4f", r.lru_pool_ratio));
  line("chunk_hit_ratio", absl::StrFormat("%.4f", static_cast<double>(r.chunk_hits) /
                                                      static_cast<double>(r.chunks_looked_up)));
  line("mean_chunks_held", absl::StrFormat("%.1f", r.mean_chunks_held));
  std::string fills;
  for (const double fill : r.fills) absl::StrAppendFormat(&fills, "%.3f ", fill);
  line("fill by store", fills);
  line("largest deviation from the mean fill", absl::StrFormat("%.3f", r.max_fill_deviation()));
  line("stores per get", absl::StrFormat("%.2f", r.stores_per_get));
  line("evictions: commanded, by stores",
       absl::StrCat(r.commanded_evictions, ", ", r.self_evictions));
  line("puts without room, refused, in progress",
       absl::StrCat(r.puts_without_room, ", ", r.refused, ", ", r.in_progress));
  line("stale hits, wrong answers", absl::StrCat(r.stale_hits, ", ", r.wrong));
  line("index and stores agree", r.differences.empty() ? "yes" : r.differences.substr(0, 400));
  line("left after removing everything", r.leaks.empty() ? "nothing" : r.leaks);
  return out;
}

}  // namespace cistern::simulation
