#include "tools/replay/demo_options.h"

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

using ::testing::HasSubstr;

ParsedDemoOptions Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "demo");
  return ParseDemoOptions(static_cast<int>(words.size()), words.data());
}

TEST(DemoOptionsTest, ReadsSizesWithUnits) {
  const ParsedDemoOptions parsed =
      Parse({"--chunk-bytes", "128KiB", "--pool-bytes", "1GiB", "--stores", "8", "--keep"});
  ASSERT_EQ(parsed.exit_code, -1);
  EXPECT_EQ(parsed.options.chunk_bytes, 131072u);
  EXPECT_EQ(parsed.options.pool_bytes, uint64_t{1} << 30);
  EXPECT_EQ(parsed.options.stores, 8u);
  EXPECT_TRUE(parsed.options.keep);
}

TEST(DemoOptionsTest, RefusesWhatCannotBe) {
  const std::vector<std::vector<const char*>> kCases = {{"--chunk-bytes", "1KiB"},
                                                        {"--chunk-bytes", "2GiB"},
                                                        {"--pool-bytes", "7parsecs"},
                                                        {"--wire", "pigeon"},
                                                        {"--stores", "0"},
                                                        {"--clients", "0"},
                                                        {"--requests", "0"},
                                                        {"--nonsense"},
                                                        {"--trace", "/nonexistent/t.jsonl"},
                                                        {"--json", "/nonexistent/r.json"},
                                                        {"--json", "/tmp"},
                                                        {"--prefill-tokens-per-second", "0"}};
  for (const auto& words : kCases) {
    EXPECT_EQ(Parse(words).exit_code, 2) << words[0];
  }
}

TEST(DemoOptionsTest, AWrongNumberIsAnsweredInWords) {
  for (const char* flag : {"--requests", "--prefill-tokens-per-second"}) {
    for (const char* text : {"0", "-3", "many", "nan"}) {
      ::testing::internal::CaptureStderr();
      EXPECT_EQ(Parse({flag, text}).exit_code, 2) << flag << " " << text;
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  HasSubstr(std::string("'") + text + "' is not a number of 1 or more"));
    }
  }
  EXPECT_EQ(Parse({"--requests", "1"}).exit_code, -1);
}

TEST(DemoOptionsTest, TheResultsMayGoToANewFile) {
  EXPECT_EQ(Parse({"--json", "/tmp/no_such_results.json"}).exit_code, -1);
  EXPECT_EQ(Parse({"--json", "no_such_results.json"}).exit_code, -1);
}

TEST(DemoOptionsTest, TheHelpTextTellsOfEveryFlag) {
  std::ifstream in("tools/replay/demo_help.txt");
  std::ostringstream text;
  text << in.rdbuf();
  for (const std::string& name : DemoFlagNames()) {
    EXPECT_THAT(text.str(), HasSubstr(name)) << name;
  }
}

TEST(ChoosePoolBytesTest, DefaultsToAFifthOfTheDistinctBytes) {
  WorkloadSummary workload;
  workload.distinct_chunks = 50'000;
  const auto bytes = ChoosePoolBytes({.stores = 2}, workload, uint64_t{16} << 30);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 655'360'000u);  // 50,000 x 64 KiB / 5
}

TEST(ChoosePoolBytesTest, TheDefaultIsFourGibibytesAtMostAndRoomForAFewChunksAtLeast) {
  WorkloadSummary workload;
  workload.distinct_chunks = 10'000'000;
  EXPECT_EQ(*ChoosePoolBytes({.stores = 2}, workload, uint64_t{16} << 30), uint64_t{4} << 30);
  workload.distinct_chunks = 1;
  EXPECT_EQ(*ChoosePoolBytes({.stores = 2}, workload, uint64_t{16} << 30), uint64_t{16} << 20);
  EXPECT_EQ(*ChoosePoolBytes({.stores = 2, .chunk_bytes = 64 << 20}, workload, uint64_t{16} << 30),
            uint64_t{512} << 20);
}

TEST(ChoosePoolBytesTest, RefusesMoreThanHalfOfTheFreeMemory) {
  const WorkloadSummary workload;
  const absl::Status status =
      ChoosePoolBytes({.stores = 2, .pool_bytes = uint64_t{5} << 30}, workload, uint64_t{8} << 30)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than half of the 8GiB"));
  EXPECT_FALSE(
      ChoosePoolBytes({.stores = 4, .pool_bytes = 16 << 20}, workload, uint64_t{8} << 30).ok());
}

TEST(FreeBytesTest, IsNeverMoreThanTheFileSystemHas) {
  EXPECT_GT(FreeBytes("/tmp"), 0u);
  EXPECT_EQ(FreeBytes("/proc"), 0u);
}

}  // namespace
}  // namespace cistern::replay
