// Secrets come from files, never from flags or configuration.
#ifndef CISTERN_BASE_SECRET_FILE_H_
#define CISTERN_BASE_SECRET_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace cistern {

// Reads a secret: InvalidArgument unless it is a regular file of mode 0600 or stricter, owned by
// us (root takes anybody's), with at least `min_bytes`. A trailing newline is not part of it.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t min_bytes);

}  // namespace cistern

#endif  // CISTERN_BASE_SECRET_FILE_H_
