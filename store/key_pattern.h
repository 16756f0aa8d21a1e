// A pattern over callers' keys.
#ifndef CISTERN_STORE_KEY_PATTERN_H_
#define CISTERN_STORE_KEY_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace re2 {
class RE2;
}  // namespace re2

namespace cistern::store {

// RE2 syntax over bytes (keys need not be text), searched for anywhere in the key: anchor with ^
// and $. Matching takes time in proportion to the key and, at worst, to the compiled pattern, and
// bounded memory. Immutable: thread-safe.
class KeyPattern {
 public:
  static constexpr size_t kMaxPatternBytes = 1'024;
  static constexpr int64_t kMaxMemoryBytes = int64_t{1} << 20;
  // RE2's instructions. Plain text takes one a byte, so any of it fits; only large repetitions do
  // not.
  static constexpr int kMaxProgramSize = 2'000;

  // "" matches every key. InvalidArgument: too long, not RE2 syntax (the message says where), or
  // more than kMaxProgramSize once compiled.
  static absl::StatusOr<KeyPattern> Compile(std::string_view pattern);

  KeyPattern(KeyPattern&&) noexcept;
  KeyPattern& operator=(KeyPattern&&) noexcept;
  ~KeyPattern();

  bool Matches(std::string_view key) const;

 private:
  KeyPattern();
  std::unique_ptr<const re2::RE2> re_;  // null: everything matches
};

}  // namespace cistern::store

#endif  // CISTERN_STORE_KEY_PATTERN_H_
