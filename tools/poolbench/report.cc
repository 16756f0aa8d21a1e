#include "tools/poolbench/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/ctl/table.h"

namespace cistern::poolbench {
namespace {

using Json = nlohmann::ordered_json;

std::string RateText(Kind kind, double rate) {
  return kind == Kind::kLookup ? absl::StrFormat("%.2f M keys/s", rate / 1e6)
                               : absl::StrFormat("%.2f GB/s", rate / 1e9);
}

// The first line's text after the colon where `name` is the key.
std::string FieldOf(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t from = line.find_first_not_of(" \t", colon + 1);
    if (from != std::string::npos) return line.substr(from);
  }
  return "";
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string ReportTable(const Report& report) {
  using ctl::Table;
  std::string out = absl::StrFormat(
      "machine   %s\nbuild     %s, commit %s\npool      %u stores, wire %s, %u calling threads, "
      "working set %s, medians of rounds of %g s\n\n",
      report.machine, report.build_mode, report.commit, report.stores, report.wire, report.threads,
      ctl::Bytes(report.working_set_bytes), report.seconds);
  if (report.build_mode != "opt") {
    out += "WARNING: this is no optimised build; these figures mean nothing.\n\n";
  }
  Table table({{""},
               {"ours", Table::Align::kRight},
               {"least", Table::Align::kRight},
               {"most", Table::Align::kRight},
               {"limit"},
               {"", Table::Align::kRight},
               {"ours / limit", Table::Align::kRight}});
  for (const CaseResult& result : report.cases) {
    const double ours = Median(result.ours.rounds);
    const auto [least, most] =
        std::minmax_element(result.ours.rounds.begin(), result.ours.rounds.end());
    const Kind kind = result.what.kind;
    std::vector<std::string> row = {result.what.Title(), RateText(kind, ours),
                                    result.ours.rounds.empty() ? "" : RateText(kind, *least),
                                    result.ours.rounds.empty() ? "" : RateText(kind, *most)};
    if (result.limits.empty()) table.AddRow(row);
    for (const Series& limit : result.limits) {
      const double bound = Median(limit.rounds);
      row.resize(4);
      row.insert(row.end(), {limit.name, RateText(kind, bound),
                             bound == 0 ? "-" : absl::StrFormat("%.2f", ours / bound)});
      table.AddRow(row);
      row = {"", "", "", ""};
    }
  }
  return out + table.ToString();
}

std::string ReportJson(const Report& report) {
  Json out;
  out["machine"] = report.machine;
  out["build_mode"] = report.build_mode;
  out["commit"] = report.commit;
  out["wire"] = report.wire;
  out["threads"] = report.threads;
  out["stores"] = report.stores;
  out["working_set_bytes"] = report.working_set_bytes;
  out["seconds"] = report.seconds;
  out["results"] = Json::array();
  for (const CaseResult& result : report.cases) {
    Json one;
    one["operation"] = KindName(result.what.kind);
    one["chunk_bytes"] = result.what.chunk_bytes;
    one["batch"] = result.what.batch;
    one["unit"] = result.what.kind == Kind::kLookup ? "keys/s" : "bytes/s";
    one["median"] = Median(result.ours.rounds);
    one["rounds"] = result.ours.rounds;
    one["limits"] = Json::array();
    for (const Series& limit : result.limits) {
      const double bound = Median(limit.rounds);
      one["limits"].push_back({{"name", limit.name},
                               {"median", bound},
                               {"rounds", limit.rounds},
                               {"ratio", bound == 0 ? 0 : Median(result.ours.rounds) / bound}});
    }
    out["results"].push_back(std::move(one));
  }
  return out.dump(2, ' ', true, Json::error_handler_t::replace);
}

std::string DescribeMachine(const std::string& cpuinfo, const std::string& meminfo, int cores) {
  std::string model = FieldOf(cpuinfo, "model name");
  if (model.empty()) model = "unknown processor";
  const uint64_t kib = std::strtoull(FieldOf(meminfo, "MemTotal").c_str(), nullptr, 10);
  return absl::StrCat(model, ", ", cores, " cores, ", ctl::Bytes(kib * 1024));
}

}  // namespace cistern::poolbench
