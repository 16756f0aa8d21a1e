// What every function of the C interface does around its work: the thread's message, statuses as
// codes, no exception past it.
#ifndef CISTERN_CLIENT_C_CALL_H_
#define CISTERN_CLIENT_C_CALL_H_

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cistern.h"

namespace cistern::c {

// The thread's message: of what it says last.
void ClearMessage() noexcept;
void SetMessage(std::string_view text);
// For when there is no memory for it: a literal.
void SetLiteralMessage(const char* text) noexcept;
const char* Message() noexcept;

cistern_code CodeOf(const absl::Status& status);

// Sets the message of an error.
cistern_code Report(const absl::Status& status);
inline cistern_code Report(cistern_code code) { return code; }

// What an exception of `error` (never one of ours: the standard library's) is answered with. Inside
// a catch block.
cistern_code ReportException() noexcept;

// Runs the body of an API function. `body` returns an absl::Status, or a code whose message it set.
template <typename Body>
cistern_code Call(Body&& body) noexcept {
  ClearMessage();
  try {
    return Report(std::forward<Body>(body)());
  } catch (...) {
    return ReportException();
  }
}

// Durations of the interface. Beyond a year: infinite.
absl::Duration FromMicros(uint64_t us);
uint64_t ToMicros(absl::Duration d);
// Timeouts of waits: less than 0 is for ever.
absl::Duration FromTimeout(int64_t us);

// InvalidArgument: `what` is null.
absl::Status NotNull(const void* p, const char* what);
// InvalidArgument: more than CISTERN_MAX_BATCH, or null and not empty.
absl::Status CheckBatch(const void* p, size_t count, const char* what);
// InvalidArgument: a bit that this library does not know.
absl::Status CheckFlags(uint32_t flags, uint32_t known, const char* what);

}  // namespace cistern::c

#endif  // CISTERN_CLIENT_C_CALL_H_
