#include "tools/output_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cistern {

// It is tried: permissions alone do not tell of a file system that is mounted read-only.
absl::Status CheckOutputPath(const std::string& path) {
  const bool was_there = access(path.c_str(), F_OK) == 0;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  // A pipe without a reader yet will have one.
  if (fd < 0 && errno == ENXIO && was_there) return absl::OkStatus();
  if (fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  close(fd);
  if (!was_there) unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace cistern
