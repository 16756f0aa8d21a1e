#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace cistern {

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, size_t min_bytes) {
  constexpr size_t kMaxBytes = 64 * 1024;
  // O_NONBLOCK: a FIFO must not hold the start up before we see that it is one.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot read the secret file ", path));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  // Of the open file, not of the path: what is checked is what is read.
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  // An administrator's root shell may use what belongs to the daemons' user.
  if (info.st_uid != geteuid() && geteuid() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": belongs to user ", info.st_uid,
                                                   ", but this process runs as ", geteuid()));
  }
  if ((info.st_mode & 0177) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: has mode %04o, but a secret's must be 0600 or stricter (chmod 600 %s)",
                        path, info.st_mode & 07777, path));
  }
  std::string secret(kMaxBytes + 1, '\0');
  size_t used = 0;
  while (used < secret.size()) {
    const ssize_t n = read(fd, secret.data() + used, secret.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  if (used > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": more than ", kMaxBytes, " bytes"));
  }
  secret.resize(used);
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (secret.size() < min_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", secret.size(), " bytes, but a secret needs at least ", min_bytes));
  }
  return secret;
}

}  // namespace cistern
