#include "base/ops/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace cistern {
namespace {

// A label's value may be a name that somebody else chose; the format wants UTF-8 and escapes
// quotes, backslashes and line ends by itself.
std::string LabelText(std::string_view value) {
  std::string out(value.substr(0, 256));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return out;
}

const char* TypeText(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

prometheus::MetricType PrometheusType(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

std::vector<absl::string_view> LabelsOf(const MetricInfo& info) {
  return absl::StrSplit(info.labels, ',', absl::SkipEmpty());
}

}  // namespace

std::string DescribeMetrics(absl::Span<const MetricInfo> table) {
  std::string out = "| metric | type | labels | what it is |\n|---|---|---|---|\n";
  for (const MetricInfo& info : table) {
    std::vector<std::string> labels;
    for (const absl::string_view label : LabelsOf(info)) {
      labels.push_back(absl::StrCat("`", label, "`"));
    }
    absl::StrAppend(&out, "| `", info.name, "` | ", TypeText(info.type), " | ",
                    absl::StrJoin(labels, ", "), " | ", info.help, " |\n");
  }
  return out;
}

struct MetricsPage::Families {
  std::vector<prometheus::MetricFamily> all;
  absl::flat_hash_map<absl::string_view, size_t> by_name;

  prometheus::ClientMetric& AddTo(absl::Span<const MetricInfo> table, const char* name,
                                  MetricType* type, Labels labels) {
    const auto it = by_name.find(name);
    CISTERN_CHECK(it != by_name.end());
    const MetricInfo& info = table[it->second];
    const std::vector<absl::string_view> declared = LabelsOf(info);
    CISTERN_CHECK(declared.size() == labels.size());
    prometheus::ClientMetric& metric = all[it->second].metric.emplace_back();
    for (const auto& [label, value] : labels) {
      CISTERN_CHECK(declared[metric.label.size()] == label);
      metric.label.push_back({label, LabelText(value)});
    }
    *type = info.type;
    return metric;
  }
};

MetricsPage::MetricsPage(absl::Span<const MetricInfo> table)
    : table_(table), families_(std::make_unique<Families>()) {
  for (const MetricInfo& info : table) {
    families_->by_name.emplace(info.name, families_->all.size());
    families_->all.push_back({info.name, info.help, PrometheusType(info.type), {}});
  }
  CISTERN_CHECK(families_->by_name.size() == table.size());
}

MetricsPage::~MetricsPage() = default;

void MetricsPage::Add(const char* name, Labels labels, double value) {
  MetricType type{};
  prometheus::ClientMetric& metric = families_->AddTo(table_, name, &type, labels);
  CISTERN_CHECK(type != MetricType::kHistogram);
  (type == MetricType::kCounter ? metric.counter.value : metric.gauge.value) = value;
}

void MetricsPage::Add(const char* name, Labels labels, const LatencyHistogram::Counts& counts) {
  MetricType type{};
  prometheus::ClientMetric& metric = families_->AddTo(table_, name, &type, labels);
  CISTERN_CHECK(type == MetricType::kHistogram);
  const auto bounds = LatencyBounds();
  uint64_t so_far = 0;
  for (size_t c = 0; c < counts.by_class.size(); ++c) {
    so_far += counts.by_class[c];
    const double bound = c < bounds.size() ? absl::ToDoubleSeconds(bounds[c])
                                           : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({so_far, bound});
  }
  metric.histogram.sample_count = so_far;
  metric.histogram.sample_sum = absl::ToDoubleSeconds(counts.sum);
}

std::vector<std::string> MetricsPage::Missing() const {
  std::vector<std::string> missing;
  for (const prometheus::MetricFamily& family : families_->all) {
    if (family.metric.empty()) missing.push_back(family.name);
  }
  return missing;
}

std::string MetricsPage::ToText() const {
  return prometheus::TextSerializer().Serialize(families_->all);
}

}  // namespace cistern
