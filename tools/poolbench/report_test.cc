#include "tools/poolbench/report.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MedianTest, IsTheMiddleOneOrTheMeanOfTwo) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
}

Report SomeReport() {
  Report report;
  report.machine = "M";
  report.build_mode = "opt";
  report.cases.push_back(
      {{Kind::kGet, 1 << 20, 16}, {"ours", {2e9, 1e9, 3e9}}, {{"bare TCP pair", {4e9, 4e9, 5e9}}}});
  report.cases.push_back({{Kind::kLookup, 4096, 1024},
                          {"ours", {3e6}},
                          {{"bare TCP echo", {6e6}}, {"gRPC echo", {1e6}}}});
  return report;
}

TEST(ReportTest, PutsEachResultBesideItsLimit) {
  const std::string table = ReportTable(SomeReport());
  EXPECT_THAT(table, HasSubstr("get, chunks of 1.0 MiB, 16 a call      2.00 GB/s      1.00 GB/s  "
                               "    3.00 GB/s  bare TCP pair      4.00 GB/s          0.50\n"));
  EXPECT_THAT(table, HasSubstr("bare TCP echo  6.00 M keys/s          0.50\n"));
  EXPECT_THAT(table, HasSubstr("gRPC echo      1.00 M keys/s          3.00\n"));
  EXPECT_THAT(table, Not(HasSubstr("WARNING")));
}

TEST(ReportTest, WarnsOfBuildsThatAreNotOptimised) {
  Report report = SomeReport();
  report.build_mode = "dbg";
  EXPECT_THAT(ReportTable(report), HasSubstr("WARNING"));
}

TEST(ReportTest, JsonHoldsEveryRound) {
  const auto json = nlohmann::json::parse(ReportJson(SomeReport()));
  EXPECT_EQ(json["results"][0]["median"], 2e9);
  EXPECT_EQ(json["results"][0]["rounds"].size(), 3u);
  EXPECT_EQ(json["results"][0]["unit"], "bytes/s");
  EXPECT_EQ(json["results"][1]["limits"][1]["ratio"], 3.0);
}

TEST(DescribeMachineTest, ReadsTheKernelsFiles) {
  EXPECT_EQ(DescribeMachine("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nflags\t: a\n",
                            "MemTotal:       16777216 kB\nMemFree: 1 kB\n", 2),
            "Fast CPU @ 3 GHz, 2 cores, 16.0 GiB");
  EXPECT_EQ(DescribeMachine("", "", 1), "unknown processor, 1 cores, 0 B");
}

}  // namespace
}  // namespace cistern::poolbench
