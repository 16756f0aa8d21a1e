#include "base/ops/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/string_view.h"

namespace cistern {
namespace {

// A line's end in a status would begin another assignment.
std::string OneLine(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

int ConnectTo(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  // Its own last byte stays zero; an abstract name has none but may not be empty.
  if (length < 2 || length >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@')) {
    CISTERN_LOG(Warning, "NOTIFY_SOCKET is neither a path nor @NAME: systemd is not notified");
    return -1;
  }
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + (path[0] == '@' ? 0 : 1));
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0) return fd;
  CISTERN_LOG(Warning, "cannot notify systemd: ", std::string(strerror(errno)));
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

Notifier::Notifier(const NotifyEnvironment& environment) {
  if (environment.notify_socket == nullptr || *environment.notify_socket == '\0') return;
  fd_ = ConnectTo(environment.notify_socket);
  if (fd_ < 0 || environment.watchdog_usec == nullptr) return;
  int64_t pid = 0;
  if (environment.watchdog_pid != nullptr &&
      (!absl::SimpleAtoi(environment.watchdog_pid, &pid) || pid != getpid())) {
    return;  // somebody else is watched: a wrapper that started us
  }
  int64_t usec = 0;
  if (absl::SimpleAtoi(environment.watchdog_usec, &usec) && usec > 0) {
    watchdog_interval_ = absl::Microseconds(usec) / 3;
  }
}

Notifier::~Notifier() {
  if (fd_ >= 0) close(fd_);
}

void Notifier::Ready(std::string_view status) const {
  Send(absl::StrCat("READY=1\nSTATUS=", OneLine(status), "\n"));
}

void Notifier::Status(std::string_view status) const {
  Send(absl::StrCat("STATUS=", OneLine(status), "\n"));
}

void Notifier::Stopping(std::string_view status) const {
  Send(absl::StrCat("STOPPING=1\nSTATUS=", OneLine(status), "\n"));
}

void Notifier::Watchdog() const { Send("WATCHDOG=1\n"); }

void Notifier::Send(const std::string& message) const {
  if (fd_ < 0) return;
  if (send(fd_, message.data(), message.size(), MSG_NOSIGNAL) >= 0) return;
  CISTERN_LOG_EVERY(Warning, absl::Minutes(10),
                    "cannot notify systemd: ", std::string(strerror(errno)));
}

}  // namespace cistern
