// What main() of a daemon does while it serves, and when it is to stop.
#ifndef CISTERN_BASE_OPS_SERVICE_H_
#define CISTERN_BASE_OPS_SERVICE_H_

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/daemon.h"
#include "base/ops/notify.h"

namespace cistern {

struct ServiceHooks {
  // Whether its threads come round. May take a few seconds when they do not.
  std::function<bool()> alive;
  // One line for `systemctl status`.
  std::function<std::string()> status;
  // Stops in good order; returns when everything has ended.
  std::function<void()> stop;
  // Makes a stop() under way wait for nobody. Called on another thread.
  std::function<void()> hurry;
};

// Waits for SIGTERM, SIGINT or Request(), feeding systemd's watchdog as long as the daemon is
// alive, and stops it. A second signal hurries the stop; a third ends the process at once with
// kExitFailed. Returns the signal's number, or -1 after Request().
int ServeUntilStopped(ShutdownSignal& shutdown, const Notifier& notifier, Clock& clock,
                      const ServiceHooks& hooks);

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_SERVICE_H_
