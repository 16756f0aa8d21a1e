// What tests everywhere need. For tests only.
#ifndef CISTERN_BASE_TEST_UTIL_H_
#define CISTERN_BASE_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {

// A new empty folder with a short path (UNIX sockets allow 107 bytes), removed with all that is in
// it when the object dies.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  // The path of `name` inside.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// `n` bytes that depend on `seed` and position only: the same seed gives the same bytes, another
// seed others, and every 8-byte word differs from its neighbours, so that bytes that landed in the
// wrong place are noticed.
std::string PatternBytes(uint64_t seed, size_t n);
void FillPattern(uint64_t seed, void* out, size_t n);

// Writes `text` to the file at `path` with `mode`, replacing what it held.
void WriteFile(const std::string& path, std::string_view text, int mode = 0644);
std::string ReadFile(const std::string& path);

namespace internal {
inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}
}  // namespace internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << status.ToString();
  return status.ok();
}

// EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound)).
MATCHER_P(StatusIs, code, std::string("has code ") + absl::StatusCodeToString(code)) {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code;
}

// The same, and the message matches: StatusIs(code, HasSubstr("lease")).
MATCHER_P2(StatusIs, code, message_matcher,
           std::string("has code ") + absl::StatusCodeToString(code) + " and its message " +
               testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  const absl::Status& status = internal::GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         testing::ExplainMatchResult(message_matcher, std::string(status.message()),
                                     result_listener);
}

}  // namespace cistern

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::cistern::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::cistern::IsOk())

// ASSERT_OK_AND_ASSIGN(auto x, F()): declares x or fails the test.
#define CISTERN_TEST_CONCAT_(a, b) a##b
#define CISTERN_TEST_CONCAT(a, b) CISTERN_TEST_CONCAT_(a, b)
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL_(CISTERN_TEST_CONCAT(cistern_test_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  ASSERT_THAT(tmp, ::cistern::IsOk());             \
  lhs = *std::move(tmp)

#endif  // CISTERN_BASE_TEST_UTIL_H_
