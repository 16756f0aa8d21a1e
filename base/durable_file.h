// Small files that must survive a power cut.
#ifndef CISTERN_BASE_DURABLE_FILE_H_
#define CISTERN_BASE_DURABLE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cistern {

// Replaces DIR/NAME by `text`, as a whole or not at all: written beside it as NAME.new (mode 0600),
// synced, renamed over it, and the folder synced. When it returns OK no power cut brings back what
// was there before. One writer of a name at a time.
// ResourceExhausted: the disk is full. Else what the system said, with the path.
absl::Status WriteFileDurably(const std::string& dir, const std::string& name,
                              std::string_view text);

}  // namespace cistern

#endif  // CISTERN_BASE_DURABLE_FILE_H_
