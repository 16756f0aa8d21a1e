#include "store/key_pattern.h"

#include <re2/re2.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cistern::store {

KeyPattern::KeyPattern() = default;
KeyPattern::KeyPattern(KeyPattern&&) noexcept = default;
KeyPattern& KeyPattern::operator=(KeyPattern&&) noexcept = default;
KeyPattern::~KeyPattern() = default;

absl::StatusOr<KeyPattern> KeyPattern::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pattern has at most ", kMaxPatternBytes, " bytes, not ", pattern.size()));
  }
  KeyPattern compiled;
  if (pattern.empty()) return compiled;
  re2::RE2::Options options(re2::RE2::Latin1);  // a key is bytes
  options.set_max_mem(kMaxMemoryBytes);
  options.set_log_errors(false);
  options.set_dot_nl(true);
  options.set_never_capture(true);
  auto re =
      std::make_unique<const re2::RE2>(re2::StringPiece(pattern.data(), pattern.size()), options);
  if (!re->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern is no regular expression of RE2's: ", re->error()));
  }
  if (re->ProgramSize() > kMaxProgramSize) {
    return absl::InvalidArgumentError(absl::StrCat("the pattern is too complex: compiled it has ",
                                                   re->ProgramSize(), " instructions, and at most ",
                                                   kMaxProgramSize,
                                                   " are taken; repetitions {n,m} multiply them"));
  }
  compiled.re_ = std::move(re);
  return compiled;
}

bool KeyPattern::Matches(std::string_view key) const {
  return re_ == nullptr || re2::RE2::PartialMatch(re2::StringPiece(key.data(), key.size()), *re_);
}

}  // namespace cistern::store
