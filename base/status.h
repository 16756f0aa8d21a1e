// Status helpers. The codes' meanings (the caller's next step) are in CONTRIBUTING.md.
#ifndef CISTERN_BASE_STATUS_H_
#define CISTERN_BASE_STATUS_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function with the status of `expr` unless it is OK.
#define CISTERN_RETURN_IF_ERROR(expr)                                                         \
  do {                                                                                        \
    if (absl::Status cistern_status_ = (expr); !cistern_status_.ok()) return cistern_status_; \
  } while (false)

#define CISTERN_STATUS_CONCAT_(a, b) a##b
#define CISTERN_STATUS_CONCAT(a, b) CISTERN_STATUS_CONCAT_(a, b)
// CISTERN_ASSIGN_OR_RETURN(auto x, F()): declares x or returns F's error.
#define CISTERN_ASSIGN_OR_RETURN(lhs, expr) \
  CISTERN_ASSIGN_OR_RETURN_IMPL_(CISTERN_STATUS_CONCAT(cistern_or_, __LINE__), lhs, expr)
#define CISTERN_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return std::move(tmp).status();       \
  lhs = *std::move(tmp)

// Aborts with a message when `cond` is false: for our own bugs only, never for bytes from a peer,
// a disk or a caller.
#define CISTERN_CHECK(cond) \
  ((cond) ? (void)0 : ::cistern::internal::CheckFailed(__FILE__, __LINE__, #cond))

namespace cistern {

// The message gets `context` and ": " in front; code and payloads stay.
absl::Status Annotate(const absl::Status& status, std::string_view context);
// From errno: the code that names the caller's next step, "what: strerror".
absl::Status ErrnoStatus(int errno_value, std::string_view what);

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace internal
}  // namespace cistern

#endif  // CISTERN_BASE_STATUS_H_
