// What `cisternctl top` shows, worked out from one answer of the master after the other. Pure: no
// sockets, no terminal, no clock.
#ifndef CISTERN_TOOLS_CTL_TOP_MODEL_H_
#define CISTERN_TOOLS_CTL_TOP_MODEL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/admin.pb.h"

namespace cistern::ctl {

// Per second; nothing where two answers are not there yet, or tell nothing.
using Rate = std::optional<double>;

struct TopStore {
  std::string id;
  std::string name;
  std::string state;
  double fill = 0;  // over its tiers
  uint64_t used_bytes = 0;
  uint64_t capacity_bytes = 0;
  uint64_t largest_free_bytes = 0;
  uint64_t chunks = 0;
  uint64_t connections = 0;
  uint64_t inflight_bytes = 0;
  uint64_t leased_bytes = 0;
  uint64_t lease_limit_bytes = 0;
  Rate puts;
  Rate put_bytes;
  Rate gets;  // chunks asked for
  Rate get_bytes;
  std::optional<double> hit_share;  // of the chunks asked for
  Rate bytes_in;                    // over all wires
  Rate bytes_out;
  Rate evictions;                                    // chunks gone, whatever the cause
  std::map<std::string, double> evictions_by_cause;  // those above zero
};

struct TopNamespace {
  std::string name;
  uint64_t chunks = 0;
  uint64_t payload_bytes = 0;
  Rate lookup_keys;
  std::optional<double> hit_share;
  Rate puts;
  Rate put_bytes;
  Rate evictions;
};

struct TopView {
  uint64_t epoch = 0;
  absl::Duration uptime;
  std::optional<uint64_t> restarted_from;  // the epoch before, for some refreshes after a restart
  uint64_t chunks = 0;
  uint64_t used_bytes = 0;
  uint64_t capacity_bytes = 0;
  uint64_t leases = 0;
  uint64_t leased_bytes = 0;
  uint64_t lease_limit_bytes = 0;
  uint64_t connections = 0;
  uint64_t in_progress_puts = 0;
  Rate lookups;
  Rate lookup_keys;
  std::optional<double> hit_share;
  Rate miss_absent;
  Rate miss_evicted;
  Rate miss_dead_store;
  Rate places;
  Rate place_refused;
  Rate puts;  // sums over the stores
  Rate gets;
  Rate put_bytes;
  Rate get_bytes;
  std::map<std::string, double> evictions_by_cause;
  std::vector<TopStore> stores;
  std::vector<TopNamespace> namespaces;
};

enum class TopSort { kName, kFill, kPuts, kGets, kHits, kBytes, kEvictions };
// "name", "fill", "puts", "gets", "hits", "bytes", "evictions".
const char* TopSortName(TopSort sort);
std::optional<TopSort> ParseTopSort(const std::string& name);
TopSort NextTopSort(TopSort sort);

// Rates between one answer and the next, over the time of whoever counted (an answer may have been
// long on its way). Counters that run backwards belong to a process that was
// started again: they are taken from zero, over its time. A store's time is that of its heartbeats:
// without a new one its rates stay.
class TopModel {
 public:
  void Update(const admin::StatsReply& reply);
  const TopView& view() const { return view_; }
  // Names ascend, all else descends; ties by name.
  void Sort(TopSort sort);

  // How many refreshes a restart is shown for.
  static constexpr int kShowRestart = 10;

 private:
  void UpdatePool(const admin::PoolStats& now, double seconds);
  TopStore MakeStore(const admin::StoreStats& now);
  TopNamespace MakeNamespace(const admin::NamespaceStats& now, double seconds, bool restarted);

  TopView view_;
  std::optional<admin::StatsReply> last_;
  std::map<std::string, admin::StoreStats> last_stores_;  // by id: as of their last new heartbeat
  std::map<std::string, TopStore> shown_stores_;
  std::map<std::string, admin::NamespaceStats> last_namespaces_;  // by id
  int show_restart_ = 0;
  uint64_t restarted_from_ = 0;
};

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_TOP_MODEL_H_
