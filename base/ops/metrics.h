// The metrics of a daemon: a table of what there is, and a page of what it is now.
#ifndef CISTERN_BASE_OPS_METRICS_H_
#define CISTERN_BASE_OPS_METRICS_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/latency_histogram.h"

namespace cistern {

enum class MetricType { kCounter, kGauge, kHistogram };

// One row of a daemon's table. Names follow Prometheus's conventions: counters end in _total, units
// are seconds and bytes.
struct MetricInfo {
  const char* name;
  MetricType type;
  const char* labels;  // names with commas between: "call,code"; "" = none
  const char* help;    // one line for people, without a full stop
};

// What the table says, in Markdown: a row per metric.
std::string DescribeMetrics(absl::Span<const MetricInfo> table);

// One collection: filled by one thread, turned into text, thrown away. The names and labels are
// literals of ours: one that is not in the table is a mistake of ours and ends the process.
class MetricsPage {
 public:
  using Labels = std::initializer_list<std::pair<const char*, std::string_view>>;

  explicit MetricsPage(absl::Span<const MetricInfo> table);
  ~MetricsPage();

  void Add(const char* name, double value) { Add(name, {}, value); }
  void Add(const char* name, uint64_t value) { Add(name, {}, static_cast<double>(value)); }
  void Add(const char* name, absl::Duration value) { Add(name, {}, absl::ToDoubleSeconds(value)); }
  // Labels in the order of the table. Values may be any bytes: what is no text is replaced.
  void Add(const char* name, Labels labels, double value);
  void Add(const char* name, Labels labels, uint64_t value) {
    Add(name, labels, static_cast<double>(value));
  }
  void Add(const char* name, Labels labels, const LatencyHistogram::Counts& counts);

  // Metrics of the table that have no value yet.
  std::vector<std::string> Missing() const;
  // Prometheus's text format, version 0.0.4, in the order of the table.
  std::string ToText() const;

 private:
  struct Families;
  const absl::Span<const MetricInfo> table_;
  const std::unique_ptr<Families> families_;
};

// The media type of ToText().
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_METRICS_H_
