#include "tools/ctl/render.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

using Align = Table::Align;

// Causes in the order of how often one meets them, and what they mean.
constexpr struct {
  const char* name;
  const char* meaning;
} kCauses[] = {
    {"evict_watermark", "to keep stores under their high watermark"},
    {"evict_asked", "because a store asked for room"},
    {"evict_self", "by a store itself, without its master or out of room"},
    {"evict_admin", "by cisternctl evict"},
    {"expired", "time to live over"},
    {"removed", "removed by a caller"},
    {"namespace_removed", "removed with their namespace"},
    {"corrupt", "found corrupt"},
    {"replaced", "replaced by a newer value"},
    {"unmounted", "segment unmounted"},
};

std::string MeaningOf(const std::string& cause) {
  for (const auto& known : kCauses) {
    if (cause == known.name) return known.meaning;
  }
  return "";
}

uint64_t Evictions(const google::protobuf::Map<std::string, uint64_t>& by_cause) {
  uint64_t sum = 0;
  for (const auto& [cause, count] : by_cause) sum += count;
  return sum;
}

// "n absent (never put, or removed)", ...
std::string Misses(const admin::PoolStats& pool) {
  std::vector<std::string> parts;
  if (pool.miss_absent() > 0) {
    parts.push_back(absl::StrCat(Count(pool.miss_absent()), " absent (never put, or removed)"));
  }
  if (pool.miss_evicted() > 0)
    parts.push_back(absl::StrCat(Count(pool.miss_evicted()), " evicted"));
  if (pool.miss_dead_store() > 0) {
    parts.push_back(absl::StrCat(Count(pool.miss_dead_store()), " on a store that is not serving"));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

struct WireBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};

// Why stores do not offer RDMA: each reason once, with the first store that gives it.
std::string WhyNoRdma(const admin::StatsReply& reply) {
  std::map<std::string, std::string> first;
  for (const admin::StoreStats& store : reply.stores()) {
    if (!store.no_rdma().empty()) first.emplace(store.no_rdma(), store.name());
  }
  std::vector<std::string> parts;
  for (const auto& [why, store] : first) parts.push_back(absl::StrCat(store, ": ", why));
  return absl::StrJoin(parts, "; ");
}

// One row a wire that is offered or has carried something, and RDMA where stores say why they do
// not offer it: who uses it, and why it is used or not.
void AddWires(const admin::StatsReply& reply, Table& table) {
  std::map<std::string, WireBytes> carried;
  std::map<std::string, size_t> offered;
  std::map<std::string, uint64_t> connections;
  for (const admin::StoreStats& store : reply.stores()) {
    for (const std::string& wire : store.wires()) ++offered[wire];
    for (const auto& [wire, count] : store.connections_by_wire()) connections[wire] += count;
    for (const auto& [name, bytes] : store.bytes_by_wire()) {
      const size_t cut = name.rfind('_');
      if (cut == std::string::npos || bytes == 0) continue;
      WireBytes& wire = carried[name.substr(0, cut)];
      (name.substr(cut + 1) == "in" ? wire.in : wire.out) += bytes;
    }
  }
  std::set<std::string> names;
  for (const auto& [name, count] : offered) names.insert(name);
  for (const auto& [name, bytes] : carried) names.insert(name);
  const std::string no_rdma = WhyNoRdma(reply);
  if (!no_rdma.empty()) names.insert("rdma");
  const auto stores = static_cast<size_t>(reply.stores_size());
  for (const std::string& name : names) {
    const WireBytes bytes = carried[name];
    std::string why;
    if (offered.size() == 1 && offered.begin()->first == name) {
      why = "the only wire that the stores offer";
    } else if (name == "shm") {
      why = "taken by clients on a store's own host";
    } else if (name == "rdma") {
      why = "taken where client and store both have it";
    } else if (name == "tcp") {
      why = "taken where no faster wire serves both ends";
    }
    const auto found = offered.find(name);
    const size_t by = found == offered.end() ? 0 : found->second;
    if (by < stores) {
      absl::StrAppend(&why, why.empty() ? "" : "; ", "offered by ", by, " of ",
                      Plural(stores, "store"));
      if (name == "rdma" && !no_rdma.empty()) absl::StrAppend(&why, " (", no_rdma, ")");
    }
    const std::string peers =
        connections[name] == 0 ? "" : absl::StrCat(Plural(connections[name], "connection"), ", ");
    table.AddRow({"wire " + name,
                  absl::StrCat(peers, Bytes(bytes.in), " in, ", Bytes(bytes.out), " out; ", why)});
  }
}

std::string TierTable(const google::protobuf::RepeatedPtrField<admin::TierStats>& tiers) {
  Table table({{"tier"},
               {"fill", Align::kRight},
               {"used", Align::kRight},
               {"capacity", Align::kRight},
               {"payload", Align::kRight},
               {"chunks", Align::kRight},
               {"largest free", Align::kRight},
               {"headers", Align::kRight},
               {"oldest", Align::kRight}});
  for (const admin::TierStats& tier : tiers) {
    table.AddRow({tier.tier(), Percent(tier.fill()), Bytes(tier.used_bytes()),
                  Bytes(tier.capacity_bytes()), Bytes(tier.payload_bytes()),
                  Count(tier.chunk_count()), Bytes(tier.largest_free_extent_bytes()),
                  Ratio(tier.headers_used(), tier.header_count()),
                  Elapsed(absl::Seconds(tier.oldest_age_s()))});
  }
  return table.ToString("  ");
}

std::string PoolLines(const admin::StatsReply& reply) {
  const admin::PoolStats& pool = reply.pool();
  Table table({{""}, {""}});
  table.AddRow({"chunks", absl::StrCat(Count(pool.chunk_count()), "; index and rings ",
                                       Bytes(pool.index_bytes()))});
  table.AddRow({"clients", Plural(pool.client_connections(), "connection")});
  table.AddRow(
      {"leases", absl::StrCat(Count(pool.active_leases()), " on ", Bytes(pool.leased_bytes()), "; ",
                              Count(pool.lease_refused()), " refused beyond the lease share")});
  table.AddRow(
      {"lookups", absl::StrCat(Count(pool.lookups()), " of ", Count(pool.lookup_keys()),
                               " keys; present ", Ratio(pool.lookup_hits(), pool.lookup_keys()))});
  table.AddRow({"  missed", Misses(pool)});
  table.AddRow(
      {"placed",
       absl::StrCat(Count(pool.places()), " calls; chunks present ", Count(pool.place_present()),
                    ", in progress elsewhere ", Count(pool.place_in_progress()),
                    ", refused for want of room ", Count(pool.place_refused()))});
  table.AddRow({"puts now", absl::StrCat(Count(pool.in_progress_puts()), " in progress")});
  const auto& causes = pool.evictions_by_cause();
  table.AddRow({"evicted", Plural(Evictions(causes), "chunk")});
  std::map<std::string, uint64_t> rest(causes.begin(), causes.end());
  const auto add = [&](const std::string& cause) {
    const auto it = rest.find(cause);
    if (it == rest.end()) return;
    if (it->second > 0) {
      const std::string meaning = MeaningOf(cause);
      table.AddRow(
          {"  " + cause, absl::StrCat(Count(it->second), meaning.empty() ? "" : " ", meaning)});
    }
    rest.erase(it);
  };
  for (const auto& cause : kCauses) add(cause.name);
  while (!rest.empty()) add(std::string(rest.begin()->first));
  AddWires(reply, table);
  return table.ToString("  ");
}

}  // namespace

std::string RenderStats(const admin::StatsReply& reply) {
  const admin::PoolStats& pool = reply.pool();
  std::string out =
      absl::StrCat("pool ", pool.pool_id(), ", epoch ", pool.epoch(), ", up ",
                   Elapsed(absl::Milliseconds(static_cast<int64_t>(pool.uptime_ms()))),
                   ", version ", pool.software_version(), " (", pool.build_mode(), ")\n");
  absl::StrAppend(&out, PoolLines(reply), "\n");
  if (pool.tiers_size() > 0) absl::StrAppend(&out, TierTable(pool.tiers()), "\n");
  absl::StrAppend(&out, RenderStores(reply));
  if (reply.namespaces_size() > 0) absl::StrAppend(&out, "\n", RenderNamespaces(reply));
  return out;
}

std::string RenderStores(const admin::StatsReply& reply) {
  if (reply.stores_size() == 0) return "no store has joined the pool\n";
  Table table({{"store", Align::kRight},
               {"name"},
               {"state"},
               {"tier"},
               {"fill", Align::kRight},
               {"used", Align::kRight},
               {"chunks", Align::kRight},
               {"largest free", Align::kRight},
               {"get hits", Align::kRight},
               {"misses", Align::kRight},
               {"puts", Align::kRight},
               {"gone", Align::kRight},
               {"corrupt", Align::kRight},
               {"conns", Align::kRight},
               {"up", Align::kRight}});
  for (const admin::StoreStats& store : reply.stores()) {
    bool first = true;
    const auto add = [&](const admin::TierStats& tier) {
      std::vector<std::string> row(15);
      if (first) {
        row = {std::to_string(store.index()),
               Printable(store.name()),
               store.state(),
               "",
               "",
               "",
               "",
               "",
               Count(store.get_hits()),
               Count(store.get_misses()),
               Count(store.put_chunks()),
               Count(Evictions(store.removed_by_cause())),
               Count(store.verify_failures()),
               Count(store.connections()),
               Elapsed(absl::Milliseconds(static_cast<int64_t>(store.uptime_ms())))};
        first = false;
      }
      row[3] = tier.tier();
      row[4] = Percent(tier.fill());
      row[5] = Bytes(tier.used_bytes());
      row[6] = Count(tier.chunk_count());
      row[7] = Bytes(tier.largest_free_extent_bytes());
      table.AddRow(std::move(row));
    };
    for (const admin::TierStats& tier : store.tiers()) add(tier);
    if (store.tiers_size() == 0) add(admin::TierStats());
  }
  return table.ToString("  ");
}

std::string RenderNamespaces(const admin::StatsReply& reply) {
  if (reply.namespaces_size() == 0) return "no namespace has been opened\n";
  Table table({{"namespace"},
               {"chunks", Align::kRight},
               {"payload", Align::kRight},
               {"verify"},
               {"part", Align::kRight},
               {"ttl", Align::kRight},
               {"options"},
               {"fingerprint"}});
  for (const admin::NamespaceStats& ns : reply.namespaces()) {
    table.AddRow(
        {absl::StrCat(Printable(ns.name()), ns.conflict() ? " (CONFLICT)" : ""),
         Count(ns.chunk_count()), Bytes(ns.payload_bytes()), ns.verify(),
         ns.part_bytes() == 0 ? "auto" : Bytes(ns.part_bytes()),
         ns.ttl_ms() == 0 ? "none" : Elapsed(absl::Milliseconds(static_cast<int64_t>(ns.ttl_ms()))),
         ns.options().empty() ? "-" : ns.options(), Printable(ns.fingerprint())});
  }
  std::string out = table.ToString("  ");
  const bool conflict = std::any_of(reply.namespaces().begin(), reply.namespaces().end(),
                                    [](const admin::NamespaceStats& ns) { return ns.conflict(); });
  if (conflict) {
    out +=
        "  CONFLICT: a store holds chunks under this name with another fingerprint. Nothing "
        "mixes;\n"
        "  give one of the two another name, or remove it: cisternctl namespaces rm NAME\n";
  }
  return out;
}

std::string RenderSegments(const admin::SegmentsReply& reply) {
  if (reply.segments_size() == 0) return "no store has a segment\n";
  Table table({{"store"},
               {"name"},
               {"state"},
               {"segment"},
               {"tier"},
               {"bytes", Align::kRight},
               {"allocatable", Align::kRight},
               {"free", Align::kRight},
               {"largest free", Align::kRight},
               {"headers", Align::kRight},
               {"huge pages", Align::kRight},
               {"outlives"},
               {"path"}});
  for (const admin::SegmentStats& s : reply.segments()) {
    table.AddRow({Printable(s.store()), Printable(s.name()), s.state(), s.segment_id(), s.tier(),
                  Bytes(s.bytes()), Bytes(s.allocatable_bytes()), Bytes(s.free_bytes()),
                  Bytes(s.largest_free_extent_bytes()),
                  absl::StrCat(Count(s.headers_used()), " of ", Count(s.header_count())),
                  s.huge_pages() == "never" || s.huge_pages().empty() ? "-" : Bytes(s.huge_bytes()),
                  s.persistent() ? "yes" : "no", Printable(s.path())});
  }
  return table.ToString();
}

std::string RenderChunks(const admin::ListChunksReply& reply) {
  Table table({{"id"},
               {"shard", Align::kRight},
               {"length", Align::kRight},
               {"namespace"},
               {"stores"},
               {"lease", Align::kRight},
               {"pinned"}});
  for (const admin::ChunkInfo& chunk : reply.chunks()) {
    std::vector<std::string> stores;
    for (const auto& replica : chunk.replicas()) {
      stores.push_back(
          absl::StrCat(Printable(replica.store()), replica.serving() ? "" : " (dead)"));
    }
    table.AddRow(
        {chunk.id(), std::to_string(chunk.shard()), Bytes(chunk.length()),
         Printable(chunk.namespace_name()), absl::StrJoin(stores, ","),
         chunk.lease_left_ms() == 0 ? "-" : Elapsed(absl::Milliseconds(chunk.lease_left_ms())),
         chunk.pinned() ? "yes" : "no"});
  }
  return table.ToString();
}

std::string RenderChunk(const admin::ChunkInfo& chunk) {
  Table table({{""}, {""}});
  table.AddRow({"id", chunk.id()});
  table.AddRow({"shard", std::to_string(chunk.shard())});
  table.AddRow({"namespace", Printable(chunk.namespace_name())});
  table.AddRow({"length", absl::StrCat(chunk.length(), " bytes")});
  for (const auto& replica : chunk.replicas()) {
    table.AddRow(
        {"replica", absl::StrCat("store ", replica.store_index(), " (", Printable(replica.store()),
                                 "), ", replica.tiers(), ", version ", replica.version(),
                                 replica.serving() ? "" : ", not serving")});
  }
  table.AddRow({"leased for", chunk.lease_left_ms() == 0
                                  ? "-"
                                  : Elapsed(absl::Milliseconds(chunk.lease_left_ms()))});
  table.AddRow({"pinned", chunk.pinned() ? "yes" : "no"});
  table.AddRow({"read since it was last looked at for eviction", chunk.touched() ? "yes" : "no"});
  table.AddRow({"expires", chunk.expiry_unix_s() == 0
                               ? "never"
                               : absl::StrCat("at unix second ", chunk.expiry_unix_s())});
  return table.ToString();
}

}  // namespace cistern::ctl
