#include "tools/poolbench/options.h"

#include "gtest/gtest.h"

namespace cistern::poolbench {
namespace {

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
  const ParsedOptions lookup = Parse({"lookup"});
  EXPECT_EQ(lookup.options.cases[0].chunk_bytes, 4096u);
  EXPECT_EQ(lookup.options.cases[0].batch, 1024u);
}

TEST(OptionsTest, RefusesWhatCannotBe) {
  const std::vector<std::vector<const char*>> kCases = {{"steal"},
                                                        {"put", "--chunk-bytes", "1KiB"},
                                                        {"put", "--working-set", "1MiB"},
                                                        {"--chunk-bytes", "64KiB"},
                                                        {"--seconds", "0"},
                                                        {"--wire", "pigeon"}};
  for (const auto& words : kCases) EXPECT_EQ(Parse(words).exit_code, 2) << words[0];
}

}  // namespace
}  // namespace cistern::poolbench
