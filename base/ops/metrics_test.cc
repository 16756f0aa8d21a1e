#include "base/ops/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr MetricInfo kTable[] = {
    {"t_calls_total", MetricType::kCounter, "call,code", "calls"},
    {"t_fill_bytes", MetricType::kGauge, "", "how full"},
    {"t_call_seconds", MetricType::kHistogram, "call", "time"},
};

TEST(MetricsPageTest, WritesPrometheusText) {
  MetricsPage page(kTable);
  page.Add("t_calls_total", {{"call", "get"}, {"code", "OK"}}, uint64_t{12'345'678'901});
  page.Add("t_calls_total", {{"call", "put"}, {"code", "OK"}}, uint64_t{0});
  page.Add("t_fill_bytes", 0.5);
  const std::string text = page.ToText();
  EXPECT_THAT(text, HasSubstr("# HELP t_calls_total calls\n# TYPE t_calls_total counter\n"));
  EXPECT_THAT(text, HasSubstr("t_calls_total{call=\"get\",code=\"OK\"} 12345678901\n"));
  EXPECT_THAT(text, HasSubstr("t_calls_total{call=\"put\",code=\"OK\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE t_fill_bytes gauge\nt_fill_bytes 0.5\n"));
  EXPECT_THAT(page.Missing(), ElementsAre("t_call_seconds"));
}

TEST(MetricsPageTest, WritesHistogramsCumulatively) {
  LatencyHistogram histogram;
  histogram.Count(absl::Microseconds(40));
  histogram.Count(absl::Microseconds(200));
  histogram.Count(absl::Seconds(60));
  MetricsPage page(kTable);
  page.Add("t_call_seconds", {{"call", "get"}}, histogram.Read());
  const std::string text = page.ToText();
  EXPECT_THAT(text, HasSubstr("t_call_seconds_bucket{call=\"get\",le=\"5e-05\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_bucket{call=\"get\",le=\"0.0001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_bucket{call=\"get\",le=\"0.00025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_bucket{call=\"get\",le=\"10\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_bucket{call=\"get\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_count{call=\"get\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("t_call_seconds_sum{call=\"get\"} 60.00024"));
  // One series is one +Inf.
  EXPECT_EQ(text.find("+Inf"), text.rfind("+Inf"));
}

TEST(MetricsPageTest, LabelsCannotBreakTheFormat) {
  MetricsPage page(kTable);
  page.Add("t_calls_total", {{"call", "a\"b\\c\nd\xff" + std::string(1000, 'x')}, {"code", ""}},
           uint64_t{1});
  const std::string text = page.ToText();
  EXPECT_THAT(text, HasSubstr("{call=\"a\\\"b\\\\c?d?xxx"));
  EXPECT_LT(text.size(), 1000u);
}

TEST(MetricsDeathTest, RefusesWhatIsNotInTheTable) {
  MetricsPage page(kTable);
  EXPECT_DEATH(page.Add("t_other", 1.0), "metrics.cc");
  EXPECT_DEATH(page.Add("t_fill_bytes", {{"tier", "dram"}}, 1.0), "metrics.cc");
  EXPECT_DEATH(page.Add("t_calls_total", {{"code", "OK"}, {"call", "get"}}, 1.0), "metrics.cc");
  EXPECT_DEATH(page.Add("t_call_seconds", {{"call", "get"}}, 1.0), "metrics.cc");
}

TEST(DescribeMetricsTest, MakesATable) {
  EXPECT_EQ(DescribeMetrics(kTable),
            "| metric | type | labels | what it is |\n|---|---|---|---|\n"
            "| `t_calls_total` | counter | `call`, `code` | calls |\n"
            "| `t_fill_bytes` | gauge |  | how full |\n"
            "| `t_call_seconds` | histogram | `call` | time |\n");
}

}  // namespace
}  // namespace cistern
