#include "tools/poolbench/report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MedianTest, IsTheMiddleOneOrTheMeanOfTwo) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
}

Case SomeCase(Kind kind, uint64_t chunk_bytes, uint64_t batch) {
  Case one;
  one.kind = kind;
  one.chunk_bytes = chunk_bytes;
  one.batch = batch;
  return one;
}

Report SomeReport() {
  Report report;
  report.machine = "M";
  report.kernel = "Linux 6";
  report.load_before = 0.5;
  report.build_mode = "opt";
  CaseResult get;
  get.what = SomeCase(Kind::kGet, 1 << 20, 16);
  get.ours = {"ours", {2e9, 1e9, 3e9}, {80, 60, 70}, {800, 600, 700}};
  get.limits = {{"bare TCP pair", {4e9, 4e9, 5e9}}, {"bare TCP round trip", {1e9}, {35}, {90}}};
  report.cases.push_back(get);
  CaseResult lookup;
  lookup.what = SomeCase(Kind::kLookup, 4096, 1024);
  lookup.ours = {"ours", {3e6}};
  lookup.limits = {{"bare TCP echo", {6e6}}, {"gRPC echo", {1e6}}};
  lookup.figures = {{"master CPU a key", 0.25, "us"}};
  report.cases.push_back(lookup);
  CaseResult index;
  index.what = SomeCase(Kind::kIndex, 65536, 16);
  index.figures = {{"bytes a chunk", 81.25, "B"}, {"share", 0.5, "share"}};
  report.cases.push_back(index);
  return report;
}

TEST(ReportTest, PutsEachResultBesideItsLimit) {
  const std::string table = ReportTable(SomeReport());
  EXPECT_THAT(table, HasSubstr("M, Linux 6; load 0.50 before, 0.00 after"));
  EXPECT_THAT(table,
              HasSubstr("get, chunks of 1.0 MiB, 16 a call      2.00 GB/s      1.00 GB/s  "
                        "    3.00 GB/s     70 us  700 us  bare TCP pair            4.00 GB/s       "
                        "   0.50"));
  EXPECT_THAT(table, HasSubstr("bare TCP round trip      1.00 GB/s          2.00    35 us\n"));
  EXPECT_THAT(table, HasSubstr("bare TCP echo        6.00 M keys/s          0.50"));
  EXPECT_THAT(table, HasSubstr("gRPC echo            1.00 M keys/s          3.00"));
  EXPECT_THAT(table, HasSubstr("lookup, 1,024 keys a call\n  master CPU a key  0.25 us\n"));
  EXPECT_THAT(table, HasSubstr("index\n  bytes a chunk  81.25 B\n  share           50.0 %\n"));
  EXPECT_THAT(table, Not(HasSubstr("WARNING")));
}

TEST(ReportTest, WarnsOfBuildsThatAreNotOptimised) {
  Report report = SomeReport();
  report.build_mode = "dbg";
  EXPECT_THAT(ReportTable(report), HasSubstr("WARNING"));
}

TEST(ReportTest, JsonHoldsEveryRound) {
  const auto json = nlohmann::json::parse(ReportJson(SomeReport()));
  const auto& get = json["results"][0];
  EXPECT_EQ(get["median"], 2e9);
  EXPECT_EQ(get["rounds"].size(), 3u);
  EXPECT_EQ(get["unit"], "bytes/s");
  EXPECT_EQ(get["p50_us"], 70);
  EXPECT_EQ(get["limits"][0]["ratio"], 0.5);
  EXPECT_EQ(get["limits"][1]["calls_per_call"], 2.0);
  EXPECT_FALSE(get["limits"][0].contains("calls_per_call"));
  EXPECT_EQ(json["results"][1]["limits"][1]["ratio"], 3.0);
  EXPECT_EQ(json["results"][1]["figures"][0]["value"], 0.25);
  EXPECT_FALSE(json["results"][2].contains("median"));
  EXPECT_EQ(json["results"][2]["figures"][0]["name"], "bytes a chunk");
}

TEST(SeriesTest, TakesTheLatenciesOfRoundsThatHaveSome) {
  Series series{"ours"};
  Round round;
  round.rate = 5;
  series.Add(round);
  EXPECT_THAT(series.rates, ElementsAre(5));
  EXPECT_TRUE(series.p50_us.empty());
  round.latency.Record(absl::Microseconds(64));
  series.Add(round);
  ASSERT_EQ(series.p50_us.size(), 1u);
  EXPECT_NEAR(series.p50_us[0], 64, 64 * 0.016);
}

TEST(FiguresOfTest, DividesTheMastersTimeByCallsAndKeys) {
  Round round;
  round.calls = 50;
  round.keys = 5000;
  round.leased_calls = 40;
  round.master_cpu_seconds = 0.005;
  const auto figures = FiguresOf(SomeCase(Kind::kLookup, 4096, 100), {round, round});
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_DOUBLE_EQ(figures[0].value, 100);  // 10 ms over 100 calls
  EXPECT_DOUBLE_EQ(figures[1].value, 1);    // over 10,000 keys
  EXPECT_DOUBLE_EQ(figures[2].value, 0.8);
  // A get does not ask the master; nothing measured says nothing.
  EXPECT_TRUE(FiguresOf(SomeCase(Kind::kGet, 4096, 100), {round}).empty());
  EXPECT_TRUE(FiguresOf(SomeCase(Kind::kLookup, 4096, 100), {}).empty());
}

TEST(FigureTextTest, ShowsUnitsAsPeopleReadThem) {
  EXPECT_EQ(FigureText({"", 0.25, "us"}), "0.25 us");
  EXPECT_EQ(FigureText({"", 2500, "us"}), "2.50 ms");
  EXPECT_EQ(FigureText({"", 1.5e9, "bytes/s"}), "1.50 GB/s");
  EXPECT_EQ(FigureText({"", 1234567, "count"}), "1,234,567");
  EXPECT_EQ(FigureText({"", 0.934, "share"}), "93.4 %");
  EXPECT_EQ(FigureText({"", 1.25, ""}), "1.25");
  EXPECT_EQ(FigureText({"", 50123, "1/s"}), "50123 1/s");
}

}  // namespace
}  // namespace cistern::poolbench
