#include "base/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/fault.h"
#include "base/status.h"

namespace cistern {
namespace {

absl::Status WriteAndSync(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (fdatasync(fd) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileDurably(const std::string& dir, const std::string& name,
                              std::string_view text) {
  const std::string path = absl::StrCat(dir, "/", name);
  const std::string temporary = path + ".new";
  if (CISTERN_FAULT("base.durable_file.write")) {
    return absl::ResourceExhaustedError(absl::StrCat("fault: base.durable_file.write of ", path));
  }
  const int dir_fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd < 0) return ErrnoStatus(errno, absl::StrCat("open folder ", dir));
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  absl::Status status =
      fd < 0 ? ErrnoStatus(errno, absl::StrCat("open ", temporary)) : absl::OkStatus();
  if (fd >= 0) {
    status = WriteAndSync(fd, text, temporary);
    close(fd);
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("rename ", temporary, " to ", path));
  }
  if (!status.ok() && fd >= 0) unlink(temporary.c_str());
  // The rename is in the folder: without this a power cut may undo it.
  if (status.ok() && fsync(dir_fd) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("sync folder ", dir));
  }
  close(dir_fd);
  return status;
}

}  // namespace cistern
