#include "tools/ctl/table.h"

#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

TEST(TableTest, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"name"}, {"chunks", Table::Align::kRight}, {"state"}});
  table.AddRow({"a", "7", "serving"});
  table.AddRow({"longer", "1,000,000", "dead"});
  EXPECT_EQ(table.ToString("  "),
            "  name       chunks  state\n"
            "  a               7  serving\n"
            "  longer  1,000,000  dead\n");
}

TEST(TableTest, NoTitleLineWithoutTitlesAndNoBlanksAtTheEnd) {
  Table table({{""}, {""}});
  table.AddRow({"key", "value"});
  table.AddRow({"only"});
  EXPECT_EQ(table.ToString(), "key   value\nonly\n");
}

TEST(TableTest, WidthCountsCharactersNotBytes) {
  Table table({{""}, {""}});
  table.AddRow({"\u00b5s", "x"});
  table.AddRow({"abc", "y"});
  EXPECT_EQ(table.ToString(), "\u00b5s   x\nabc  y\n");
}

TEST(QuantitiesTest, Count) {
  EXPECT_EQ(Count(0), "0");
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(1000), "1,000");
  EXPECT_EQ(Count(1234567), "1,234,567");
}

TEST(QuantitiesTest, Bytes) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1024), "1.0 KiB");
  EXPECT_EQ(Bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(Bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(Bytes(UINT64_MAX), "16.0 EiB");
}

TEST(QuantitiesTest, RatiosOfNothingAreADash) {
  EXPECT_EQ(Ratio(1, 3), "33.3 %");
  EXPECT_EQ(Ratio(0, 0), "-");
}

TEST(QuantitiesTest, Elapsed) {
  EXPECT_EQ(Elapsed(absl::Milliseconds(450)), "450 ms");
  EXPECT_EQ(Elapsed(absl::Seconds(59)), "59 s");
  EXPECT_EQ(Elapsed(absl::Seconds(130)), "2 min 10 s");
  EXPECT_EQ(Elapsed(absl::Minutes(185)), "3 h 5 min");
  EXPECT_EQ(Elapsed(absl::Hours(49)), "2 d 1 h");
}

TEST(QuantitiesTest, Latency) {
  EXPECT_EQ(Latency(absl::Nanoseconds(1234)), "1.2 us");
  EXPECT_EQ(Latency(absl::Microseconds(91)), "91 us");
  EXPECT_EQ(Latency(absl::Microseconds(1240)), "1.24 ms");
  EXPECT_EQ(Latency(absl::Milliseconds(2100)), "2.10 s");
}

TEST(QuantitiesTest, Plural) {
  EXPECT_EQ(Plural(1, "chunk"), "1 chunk");
  EXPECT_EQ(Plural(0, "chunk"), "0 chunks");
}

TEST(QuantitiesTest, PrintableHidesWhatTerminalsObey) {
  EXPECT_EQ(Printable("a\x1b[31m\n\u00b5"), "a\\x1b[31m\\x0a\u00b5");
}

}  // namespace
}  // namespace cistern::ctl
