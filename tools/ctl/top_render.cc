#include "tools/ctl/top_render.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/ctl/table.h"

namespace cistern::ctl {
namespace {

using Align = Table::Align;
using Json = nlohmann::ordered_json;

// 0.4 of something a second is not nothing.
std::string PerSecond(const Rate& rate) {
  if (!rate.has_value()) return "-";
  if (*rate == 0) return "0";
  if (*rate < 10) return absl::StrFormat("%.1f", *rate);
  return Count(static_cast<uint64_t>(std::llround(*rate)));
}

std::string BytesPerSecond(const Rate& rate) {
  return rate.has_value() ? Bytes(static_cast<uint64_t>(std::llround(*rate))) : "-";
}

std::string ShareText(const std::optional<double>& share) {
  return share.has_value() ? Percent(*share) : "-";
}

// "evict_" is in nearly every name.
std::string ShortCause(const std::string& cause) {
  return cause.compare(0, 6, "evict_") == 0 ? cause.substr(6) : cause;
}

std::string CausesText(const std::map<std::string, double>& by_cause) {
  std::vector<std::string> parts;
  for (const auto& [cause, rate] : by_cause) {
    parts.push_back(absl::StrCat(ShortCause(cause), " ", PerSecond(rate)));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string OfWhole(uint64_t part, uint64_t whole) {
  return absl::StrCat(Bytes(part), " of ", Bytes(whole), " (", Ratio(part, whole), ")");
}

void AddLines(const std::string& text, std::vector<std::string>* lines) {
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines->emplace_back(line);
  }
}

std::string StoreTable(const TopView& view) {
  Table table({{"store"},
               {"state"},
               {"fill", Align::kRight},
               {"used", Align::kRight},
               {"chunks", Align::kRight},
               {"puts/s", Align::kRight},
               {"gets/s", Align::kRight},
               {"hits", Align::kRight},
               {"in/s", Align::kRight},
               {"out/s", Align::kRight},
               {"gone/s", Align::kRight},
               {"by cause"},
               {"leased", Align::kRight},
               {"conns", Align::kRight}});
  for (const TopStore& store : view.stores) {
    table.AddRow({Printable(store.name), store.state, Percent(store.fill), Bytes(store.used_bytes),
                  Count(store.chunks), PerSecond(store.puts), PerSecond(store.gets),
                  ShareText(store.hit_share), BytesPerSecond(store.bytes_in),
                  BytesPerSecond(store.bytes_out), PerSecond(store.evictions),
                  store.evictions.has_value() ? CausesText(store.evictions_by_cause) : "-",
                  Ratio(store.leased_bytes, store.lease_limit_bytes), Count(store.connections)});
  }
  return table.ToString();
}

std::string NamespaceTable(const TopView& view) {
  Table table({{"namespace"},
               {"chunks", Align::kRight},
               {"payload", Align::kRight},
               {"lookup keys/s", Align::kRight},
               {"hits", Align::kRight},
               {"puts/s", Align::kRight},
               {"put bytes/s", Align::kRight},
               {"evicted/s", Align::kRight}});
  for (const TopNamespace& ns : view.namespaces) {
    table.AddRow({Printable(ns.name), Count(ns.chunks), Bytes(ns.payload_bytes),
                  PerSecond(ns.lookup_keys), ShareText(ns.hit_share), PerSecond(ns.puts),
                  BytesPerSecond(ns.put_bytes), PerSecond(ns.evictions)});
  }
  return table.ToString();
}

Json Number(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json CausesJson(const std::map<std::string, double>& by_cause) {
  Json out = Json::object();
  for (const auto& [cause, rate] : by_cause) out[cause] = rate;
  return out;
}

Json PoolJson(const TopView& view) {
  Json out;
  out["epoch"] = view.epoch;
  out["uptime_seconds"] = absl::ToDoubleSeconds(view.uptime);
  out["restarted_from_epoch"] =
      view.restarted_from.has_value() ? Json(*view.restarted_from) : Json(nullptr);
  out["chunks"] = view.chunks;
  out["used_bytes"] = view.used_bytes;
  out["capacity_bytes"] = view.capacity_bytes;
  out["leases"] = view.leases;
  out["leased_bytes"] = view.leased_bytes;
  out["lease_limit_bytes"] = view.lease_limit_bytes;
  out["client_connections"] = view.connections;
  out["in_progress_puts"] = view.in_progress_puts;
  out["lookups_per_second"] = Number(view.lookups);
  out["lookup_keys_per_second"] = Number(view.lookup_keys);
  out["lookup_hit_share"] = Number(view.hit_share);
  out["miss_absent_per_second"] = Number(view.miss_absent);
  out["miss_evicted_per_second"] = Number(view.miss_evicted);
  out["miss_dead_store_per_second"] = Number(view.miss_dead_store);
  out["places_per_second"] = Number(view.places);
  out["place_refused_per_second"] = Number(view.place_refused);
  out["puts_per_second"] = Number(view.puts);
  out["put_bytes_per_second"] = Number(view.put_bytes);
  out["gets_per_second"] = Number(view.gets);
  out["get_bytes_per_second"] = Number(view.get_bytes);
  out["evictions_per_second_by_cause"] = CausesJson(view.evictions_by_cause);
  return out;
}

Json StoreJson(const TopStore& store) {
  Json out;
  out["name"] = store.name;
  out["store_id"] = store.id;
  out["state"] = store.state;
  out["fill"] = store.fill;
  out["used_bytes"] = store.used_bytes;
  out["capacity_bytes"] = store.capacity_bytes;
  out["largest_free_extent_bytes"] = store.largest_free_bytes;
  out["chunks"] = store.chunks;
  out["connections"] = store.connections;
  out["inflight_bytes"] = store.inflight_bytes;
  out["leased_bytes"] = store.leased_bytes;
  out["lease_limit_bytes"] = store.lease_limit_bytes;
  out["puts_per_second"] = Number(store.puts);
  out["put_bytes_per_second"] = Number(store.put_bytes);
  out["gets_per_second"] = Number(store.gets);
  out["get_bytes_per_second"] = Number(store.get_bytes);
  out["get_hit_share"] = Number(store.hit_share);
  out["in_bytes_per_second"] = Number(store.bytes_in);
  out["out_bytes_per_second"] = Number(store.bytes_out);
  out["gone_per_second"] = Number(store.evictions);
  out["gone_per_second_by_cause"] = CausesJson(store.evictions_by_cause);
  return out;
}

Json NamespaceJson(const TopNamespace& ns) {
  Json out;
  out["name"] = ns.name;
  out["chunks"] = ns.chunks;
  out["payload_bytes"] = ns.payload_bytes;
  out["lookup_keys_per_second"] = Number(ns.lookup_keys);
  out["lookup_hit_share"] = Number(ns.hit_share);
  out["puts_per_second"] = Number(ns.puts);
  out["put_bytes_per_second"] = Number(ns.put_bytes);
  out["evicted_per_second"] = Number(ns.evictions);
  return out;
}

}  // namespace

std::vector<std::string> RenderTop(const TopView& view, const TopFrame& frame) {
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat("cistern ", frame.master, ", epoch ", view.epoch, ", up ",
                               Elapsed(view.uptime), "; ",
                               absl::FormatTime("%H:%M:%S", frame.now, absl::LocalTimeZone()),
                               "; stores and namespaces by ", TopSortName(frame.sort)));
  if (!frame.trouble.empty()) {
    lines.push_back(absl::StrCat("NO ANSWER: ", Printable(frame.trouble)));
  } else if (view.restarted_from.has_value()) {
    lines.push_back(absl::StrCat("THE MASTER WAS STARTED AGAIN: epoch ", *view.restarted_from,
                                 " before, ", view.epoch, " now"));
  }
  lines.push_back(
      absl::StrCat("pool: ", Plural(view.stores.size(), "store"), ", ", Count(view.chunks),
                   " chunks, ", OfWhole(view.used_bytes, view.capacity_bytes), "; leased ",
                   OfWhole(view.leased_bytes, view.lease_limit_bytes), " in ",
                   Plural(view.leases, "lease"), "; ", Plural(view.connections, "connection")));
  lines.push_back(absl::StrCat(
      "lookups/s ", PerSecond(view.lookups), ", keys/s ", PerSecond(view.lookup_keys), ", hits ",
      ShareText(view.hit_share), "; misses/s: absent ", PerSecond(view.miss_absent), ", evicted ",
      PerSecond(view.miss_evicted), ", dead store ", PerSecond(view.miss_dead_store)));
  lines.push_back(absl::StrCat(
      "puts/s ", PerSecond(view.puts), " (", BytesPerSecond(view.put_bytes), "), gets/s ",
      PerSecond(view.gets), " (", BytesPerSecond(view.get_bytes), "), refused/s ",
      PerSecond(view.place_refused), ", being put ", Count(view.in_progress_puts)));
  lines.push_back(absl::StrCat("evictions/s: ", view.lookups.has_value()
                                                    ? CausesText(view.evictions_by_cause)
                                                    : std::string("-")));
  lines.push_back("");
  if (view.stores.empty()) {
    lines.push_back("no store has joined the pool");
  } else {
    AddLines(StoreTable(view), &lines);
  }
  if (!view.namespaces.empty()) {
    lines.push_back("");
    AddLines(NamespaceTable(view), &lines);
  }
  return lines;
}

std::string TopJson(const TopView& view, const TopFrame& frame) {
  Json out;
  out["time"] = absl::FormatTime(absl::RFC3339_sec, frame.now, absl::UTCTimeZone());
  out["master"] = frame.master;
  if (!frame.trouble.empty()) {
    out["error"] = frame.trouble;
  } else {
    out["pool"] = PoolJson(view);
    out["stores"] = Json::array();
    for (const TopStore& store : view.stores) out["stores"].push_back(StoreJson(store));
    out["namespaces"] = Json::array();
    for (const TopNamespace& ns : view.namespaces) out["namespaces"].push_back(NamespaceJson(ns));
  }
  return out.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string CutToWidth(const std::string& line, size_t width) {
  if (DisplayWidth(line) <= width) return line;
  size_t at = 0;
  for (size_t shown = 0; at < line.size(); ++at) {
    // Not in the middle of a character: bytes 10xxxxxx go on with one.
    if ((static_cast<unsigned char>(line[at]) & 0xC0) != 0x80 && shown++ == width) break;
  }
  return line.substr(0, at);
}

}  // namespace cistern::ctl
