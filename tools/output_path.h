// Where a tool is to write its results: looked at before the work, not after it.
#ifndef CISTERN_TOOLS_OUTPUT_PATH_H_
#define CISTERN_TOOLS_OUTPUT_PATH_H_

#include <string>

#include "absl/status/status.h"

namespace cistern {

// InvalidArgument, with the reason, when `path` cannot be written. Leaves what is there as it is,
// and nothing where nothing was.
absl::Status CheckOutputPath(const std::string& path);

}  // namespace cistern

#endif  // CISTERN_TOOLS_OUTPUT_PATH_H_
