// systemd's notification protocol (sd_notify(3)), as far as a daemon needs it. A datagram of lines
// NAME=VALUE to the socket that the environment names; without one nothing is sent.
#ifndef CISTERN_BASE_OPS_NOTIFY_H_
#define CISTERN_BASE_OPS_NOTIFY_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace cistern {

// What main() finds in the environment; null = not set.
struct NotifyEnvironment {
  const char* notify_socket = nullptr;  // NOTIFY_SOCKET: a path, or @NAME of the abstract space
  const char* watchdog_usec = nullptr;  // WATCHDOG_USEC
  const char* watchdog_pid = nullptr;   // WATCHDOG_PID: whom the watchdog means
};

// Never blocks and never fails the daemon: what cannot be sent is logged once. Thread-safe.
class Notifier {
 public:
  Notifier() = default;
  explicit Notifier(const NotifyEnvironment& environment);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  bool enabled() const { return fd_ >= 0; }
  // How often Watchdog() is to be called; infinite when nobody watches. A third of systemd's limit:
  // one may be late.
  absl::Duration watchdog_interval() const { return watchdog_interval_; }

  void Ready(std::string_view status) const;
  void Status(std::string_view status) const;
  void Stopping(std::string_view status) const;
  void Watchdog() const;

 private:
  void Send(const std::string& message) const;

  int fd_ = -1;  // connected to the socket
  absl::Duration watchdog_interval_ = absl::InfiniteDuration();
};

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_NOTIFY_H_
