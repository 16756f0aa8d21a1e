#include "store/key_pattern.h"

#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

using ::testing::HasSubstr;

bool Matches(std::string_view pattern, std::string_view key) {
  const auto compiled = KeyPattern::Compile(pattern);
  EXPECT_OK(compiled.status());
  return compiled.ok() && compiled->Matches(key);
}

TEST(KeyPatternTest, IsFoundAnywhereUnlessAnchored) {
  EXPECT_TRUE(Matches("b+", "abbc"));
  EXPECT_FALSE(Matches("^b+", "abbc"));
  EXPECT_TRUE(Matches("^model/7b/.*@[0-9]+$", "model/7b/layer 3@42"));
  EXPECT_FALSE(Matches("^model/7b/.*@[0-9]+$", "model/7b/layer 3@42x"));
}

TEST(KeyPatternTest, EmptyMatchesEverything) {
  EXPECT_TRUE(Matches("", "any"));
  EXPECT_TRUE(Matches("", std::string("\0\xff", 2)));
}

TEST(KeyPatternTest, KeysAndPatternsAreBytes) {
  EXPECT_TRUE(Matches("\\xff\\x00", std::string("a\xff\0b", 4)));
  EXPECT_TRUE(Matches("^.{4}$", std::string("a\xff\n\0", 4)));
  EXPECT_TRUE(Matches("\xc3\xa9", "caf\xc3\xa9"));  // what UTF-8 writes as e acute
}

TEST(KeyPatternTest, WhatIsNoPatternIsRefusedWithTheReason) {
  EXPECT_THAT(KeyPattern::Compile("a(b"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("missing )")));
  EXPECT_THAT(KeyPattern::Compile("a(?=b)"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(KeyPattern::Compile(std::string(1025, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1024")));
  EXPECT_OK(KeyPattern::Compile(std::string(1024, 'a')).status());
}

TEST(KeyPatternTest, CompiledTooLargeIsRefused) {
  EXPECT_THAT(KeyPattern::Compile("((((a{30}){30}){30}){30})"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(KeyPattern::Compile("(((\\pL{100}){10}){10})"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(KeyPatternTest, RepetitionsThatMultiplyAreRefusedWithTheReason) {
  // 3,000 letters, and 100 times 28 or so: within RE2's own bounds.
  EXPECT_THAT(KeyPattern::Compile("(abc){1000}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too complex")));
  EXPECT_THAT(KeyPattern::Compile("(a{10}.{0,9}){100}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too complex")));
  for (const char* const ordinary :
       {"^model/[a-z0-9_-]{1,64}/layer [0-9]+@[0-9a-f]{64}$", "(?i)llama|qwen|mistral",
        "^tenant-(a|b|c)/.{0,200}/(kv|hidden)/[0-9]{1,6}$", "\\bstep\\d{8}\\b", "a{1000}"}) {
    EXPECT_OK(KeyPattern::Compile(ordinary).status()) << ordinary;
  }
}

// What takes exponential time elsewhere is linear here: 4 KiB of it would else never end.
TEST(KeyPatternTest, NestedRepetitionsAreNoTrap) {
  EXPECT_FALSE(Matches("^(a+)+$", std::string(4095, 'a') + "b"));
  EXPECT_FALSE(Matches("(a|aa)+c", std::string(4096, 'a')));
  EXPECT_FALSE(Matches("(x+x+)+y", std::string(4096, 'x')));
}

}  // namespace
}  // namespace cistern::store
