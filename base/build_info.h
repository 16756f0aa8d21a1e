#ifndef CISTERN_BASE_BUILD_INFO_H_
#define CISTERN_BASE_BUILD_INFO_H_

#include "absl/strings/string_view.h"

namespace cistern {

// How this binary was compiled: "opt", "dbg", "asan" or "tsan". Benchmarks print it, and warn
// unless it is "opt".
absl::string_view BuildMode();

// The commit the binary was built from, 12 hex digits, followed by "-dirty" if the tree had
// changes. "unstamped" outside release builds (--config=release): an ordinary build would otherwise
// relink and test everything anew at each commit.
absl::string_view CommitId();

}  // namespace cistern

#endif  // CISTERN_BASE_BUILD_INFO_H_
