#include "base/status.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace cistern {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(std::string(context), ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

absl::Status ErrnoStatus(int errno_value, std::string_view what) {
  absl::Status status = absl::ErrnoToStatus(errno_value, std::string(what));
  // Where Abseil's code would send the caller the wrong way.
  switch (errno_value) {
    case EPIPE:         // The peer is gone: dial again.
    case ECONNABORTED:  // "Aborted" would mean a stale epoch.
      return absl::UnavailableError(status.message());
    case EIO:  // The medium is bad: use another replica.
      return absl::DataLossError(status.message());
    default:
      return status;
  }
}

namespace internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace internal
}  // namespace cistern
