#include "tools/poolbench/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/ctl/table.h"

namespace cistern::poolbench {
namespace {

using Json = nlohmann::ordered_json;
using ctl::Table;

std::string RateText(Kind kind, double rate) {
  return kind == Kind::kLookup ? absl::StrFormat("%.2f M keys/s", rate / 1e6)
                               : absl::StrFormat("%.2f GB/s", rate / 1e9);
}

std::string LatencyText(const std::vector<double>& rounds_us) {
  return rounds_us.empty() ? "" : ctl::Latency(absl::Microseconds(Median(rounds_us)));
}

double RatioOf(const Series& ours, const Series& limit) {
  const double bound = Median(limit.rates);
  return bound == 0 ? 0 : Median(ours.rates) / bound;
}

// How many of the limit's calls ours takes, by their medians; 0 = not known.
double LatencyRatioOf(const Series& ours, const Series& limit) {
  const double bound = Median(limit.p50_us);
  return bound == 0 ? 0 : Median(ours.p50_us) / bound;
}

std::string Head(const Report& report) {
  std::string out = absl::StrFormat(
      "machine   %s, %s; load %.2f before, %.2f after\n"
      "build     %s, commit %s\n"
      "pool      %u stores, wire %s, %s memory, %u calling threads, working set %s, medians of "
      "rounds of %g s\n\n",
      report.machine, report.kernel, report.load_before, report.load_after, report.build_mode,
      report.commit, report.stores, report.wire, report.memory, report.threads,
      ctl::Bytes(report.working_set_bytes), report.seconds);
  if (report.build_mode != "opt") {
    out += "WARNING: this is no optimised build; these figures mean nothing.\n\n";
  }
  return out;
}

void AddRows(const CaseResult& result, Table* table) {
  const Kind kind = result.what.kind;
  const std::vector<double>& rates = result.ours.rates;
  std::vector<std::string> row = {result.what.Title(), RateText(kind, Median(rates))};
  if (rates.empty()) {
    row.insert(row.end(), {"", ""});
  } else {
    const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
    row.insert(row.end(), {RateText(kind, *least), RateText(kind, *most)});
  }
  row.insert(row.end(), {LatencyText(result.ours.p50_us), LatencyText(result.ours.p99_us)});
  const size_t own = row.size();
  if (result.limits.empty()) table->AddRow(row);
  for (const Series& limit : result.limits) {
    row.resize(own);
    const double ratio = RatioOf(result.ours, limit);
    row.insert(row.end(),
               {limit.name, RateText(kind, Median(limit.rates)),
                ratio == 0 ? "-" : absl::StrFormat("%.2f", ratio), LatencyText(limit.p50_us)});
    table->AddRow(row);
    row.assign(own, "");
  }
}

Json SeriesJson(const Series& series) {
  Json out;
  out["median"] = Median(series.rates);
  out["rounds"] = series.rates;
  if (!series.p50_us.empty()) {
    out["p50_us"] = Median(series.p50_us);
    out["p99_us"] = Median(series.p99_us);
    out["p50_us_rounds"] = series.p50_us;
    out["p99_us_rounds"] = series.p99_us;
  }
  return out;
}

Json CaseJson(const CaseResult& result) {
  const Case& what = result.what;
  Json one;
  one["operation"] = KindName(what.kind);
  one["title"] = what.Title();
  one["chunk_bytes"] = what.chunk_bytes;
  one["batch"] = what.batch;
  one["spans"] = what.spans;
  if (IsRate(what.kind)) {
    one["unit"] = what.kind == Kind::kLookup ? "keys/s" : "bytes/s";
    one.update(SeriesJson(result.ours));
    one["limits"] = Json::array();
    for (const Series& limit : result.limits) {
      Json bound = {{"name", limit.name}};
      bound.update(SeriesJson(limit));
      bound["ratio"] = RatioOf(result.ours, limit);
      if (!limit.p50_us.empty()) bound["calls_per_call"] = LatencyRatioOf(result.ours, limit);
      one["limits"].push_back(std::move(bound));
    }
  }
  one["figures"] = Json::array();
  for (const Figure& figure : result.figures) {
    one["figures"].push_back(
        {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}});
  }
  return one;
}

}  // namespace

void Series::Add(const Round& round) {
  rates.push_back(round.rate);
  if (round.latency.count() == 0) return;
  p50_us.push_back(absl::ToDoubleMicroseconds(round.latency.Percentile(0.5)));
  p99_us.push_back(absl::ToDoubleMicroseconds(round.latency.Percentile(0.99)));
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string FigureText(const Figure& figure) {
  const double v = figure.value;
  if (figure.unit == "share") return ctl::Percent(v);
  if (figure.unit == "us" && v < 9.95) return absl::StrFormat("%.3g us", v);
  if (figure.unit == "us") return ctl::Latency(absl::Microseconds(v));
  if (figure.unit == "s") return absl::StrFormat("%.2f s", v);
  if (figure.unit == "bytes/s") return absl::StrFormat("%.2f GB/s", v / 1e9);
  if (figure.unit == "") return absl::StrFormat("%.2f", v);
  if (figure.unit == "count") return ctl::Count(static_cast<uint64_t>(v));
  return absl::StrFormat("%.*f %s", v < 100 ? 2 : 0, v, figure.unit);
}

std::vector<Figure> FiguresOf(const Case& what, const std::vector<Round>& rounds) {
  Round sum;
  for (const Round& round : rounds) {
    sum.calls += round.calls;
    sum.keys += round.keys;
    sum.leased_calls += round.leased_calls;
    sum.master_cpu_seconds += round.master_cpu_seconds;
  }
  std::vector<Figure> figures;
  if (sum.calls == 0 || sum.keys == 0) return figures;
  const double calls = static_cast<double>(sum.calls);
  if (sum.master_cpu_seconds > 0 && (what.kind == Kind::kPut || what.kind == Kind::kLookup)) {
    figures.push_back({"master CPU a call", sum.master_cpu_seconds * 1e6 / calls, "us"});
    figures.push_back(
        {"master CPU a key", sum.master_cpu_seconds * 1e6 / static_cast<double>(sum.keys), "us"});
  }
  if (what.kind == Kind::kLookup && what.lease) {
    figures.push_back(
        {"calls leased in full", static_cast<double>(sum.leased_calls) / calls, "share"});
  }
  return figures;
}

std::string ReportTable(const Report& report) {
  Table rates({{""},
               {"ours", Table::Align::kRight},
               {"least", Table::Align::kRight},
               {"most", Table::Align::kRight},
               {"call p50", Table::Align::kRight},
               {"p99", Table::Align::kRight},
               {"limit"},
               {"", Table::Align::kRight},
               {"ours / limit", Table::Align::kRight},
               {"its p50", Table::Align::kRight}});
  std::string figures;
  for (const CaseResult& result : report.cases) {
    if (IsRate(result.what.kind)) AddRows(result, &rates);
    if (result.figures.empty()) continue;
    Table table({{""}, {"", Table::Align::kRight}});
    for (const Figure& figure : result.figures) table.AddRow({figure.name, FigureText(figure)});
    absl::StrAppend(&figures, "\n", result.what.Title(), "\n", table.ToString("  "));
  }
  return Head(report) + (rates.empty() ? "" : rates.ToString()) + figures;
}

std::string ReportJson(const Report& report) {
  Json out;
  out["machine"] = report.machine;
  out["kernel"] = report.kernel;
  out["load_before"] = report.load_before;
  out["load_after"] = report.load_after;
  out["build_mode"] = report.build_mode;
  out["commit"] = report.commit;
  out["wire"] = report.wire;
  out["memory"] = report.memory;
  out["threads"] = report.threads;
  out["stores"] = report.stores;
  out["working_set_bytes"] = report.working_set_bytes;
  out["seconds"] = report.seconds;
  out["results"] = Json::array();
  for (const CaseResult& result : report.cases) out["results"].push_back(CaseJson(result));
  return out.dump(2, ' ', true, Json::error_handler_t::replace);
}

}  // namespace cistern::poolbench
