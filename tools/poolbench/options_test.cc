#include "tools/poolbench/options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

using ::testing::HasSubstr;

ParsedOptions Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "poolbench");
  return ParseOptions(static_cast<int>(words.size()), words.data());
}

TEST(OptionsTest, WithoutAnOperationTheUsualCases) {
  const ParsedOptions parsed = Parse({"--baseline"});
  ASSERT_EQ(parsed.exit_code, -1);
  ASSERT_EQ(parsed.options.cases.size(), 5u);
  EXPECT_EQ(parsed.options.cases[0].Title(), "get, chunks of 1.0 MiB, 16 a call");
  EXPECT_EQ(parsed.options.cases[4].Title(), "lookup, 1,024 keys a call");
  EXPECT_TRUE(parsed.options.baseline);
}

TEST(OptionsTest, AnOperationTakesSizesAndHasDefaults) {
  const ParsedOptions put = Parse({"put", "--chunk-bytes", "64KiB", "--batch", "64"});
  ASSERT_EQ(put.options.cases.size(), 1u);
  EXPECT_EQ(put.options.cases[0].chunk_bytes, 65536u);
  EXPECT_EQ(put.options.cases[0].batch, 64u);
  const ParsedOptions lookup = Parse({"lookup", "--no-lease"});
  EXPECT_EQ(lookup.options.cases[0].chunk_bytes, 4096u);
  EXPECT_EQ(lookup.options.cases[0].batch, 1024u);
  EXPECT_FALSE(lookup.options.cases[0].lease);
  EXPECT_EQ(lookup.options.cases[0].Title(), "lookup, 1,024 keys a call, no lease");
  EXPECT_EQ(Parse({"index"}).options.cases[0].kind, Kind::kIndex);
  EXPECT_EQ(Parse({"overload"}).options.cases[0].chunk_bytes, 65536u);
}

TEST(OptionsTest, CasesAreTextsThatMayBeRepeated) {
  const ParsedOptions parsed = Parse({"--case", "get chunk=1MiB batch=16 spans=64", "--case",
                                      "mixed chunk=64KiB gets=0.5", "--wire", "shm"});
  ASSERT_EQ(parsed.exit_code, -1);
  ASSERT_EQ(parsed.options.cases.size(), 2u);
  EXPECT_EQ(parsed.options.cases[0].spans, 64u);
  EXPECT_EQ(parsed.options.cases[0].Title(), "get, chunks of 1.0 MiB in 64 spans, 16 a call");
  EXPECT_EQ(parsed.options.cases[1].Title(), "mixed, chunks of 64.0 KiB, 16 a call, 50.0 % gets");
  EXPECT_EQ(parsed.options.wire, "shm");
}

TEST(OptionsTest, ACasesErrorsNameTheWord) {
  const std::vector<std::pair<const char*, const char*>> kWrong = {
      {"", "operation is missing"}, {"steal", "steal"},       {"get batch=x", "batch=x"},
      {"get chunk=", "chunk="},     {"get size=3", "size=3"}, {"get batch", "'batch'"}};
  for (const auto& [text, named] : kWrong) {
    const auto one = ParseCase(text);
    ASSERT_FALSE(one.ok()) << text;
    EXPECT_THAT(std::string(one.status().message()), HasSubstr(named));
  }
}

TEST(OptionsTest, RefusesWhatCannotBe) {
  const std::vector<std::vector<const char*>> kCases = {
      {"steal"},
      {"put", "--chunk-bytes", "1KiB"},
      {"put", "--working-set", "1MiB"},
      {"put", "--chunk-bytes", "64KiB", "--spans", "7"},
      {"--chunk-bytes", "64KiB"},
      {"get", "--case", "put"},
      {"--case", "get", "put"},
      {"mixed", "--gets", "2"},
      {"fill", "--pool-bytes", "1MiB"},
      {"index", "--master", "h:1"},
      {"index", "--index-stores", "0"},
      {"--seconds", "0"},
      {"--memory", "borrowed"},
      {"--wire", "pigeon"}};
  for (const auto& words : kCases) EXPECT_EQ(Parse(words).exit_code, 2) << words[0];
}

}  // namespace
}  // namespace cistern::poolbench
