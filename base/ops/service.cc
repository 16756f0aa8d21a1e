#include "base/ops/service.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/log.h"

namespace cistern {
namespace {

constexpr absl::Duration kStatusInterval = absl::Seconds(10);
// How late the thread that waits for further signals hears that there is no need any more.
constexpr absl::Duration kStopPoll = absl::Milliseconds(20);

int AwaitStop(ShutdownSignal& shutdown, const Notifier& notifier, Clock& clock,
              const ServiceHooks& hooks) {
  if (!notifier.enabled()) {
    int signal = 0;
    while (signal == 0) signal = shutdown.Wait(absl::InfiniteDuration());
    return signal;
  }
  std::string told = hooks.status();
  MonoTime status_due = clock.Mono() + kStatusInterval;
  while (true) {
    const absl::Duration wait = std::min(notifier.watchdog_interval(), status_due - clock.Mono());
    if (const int signal = shutdown.Wait(std::max(wait, absl::ZeroDuration())); signal != 0) {
      return signal;
    }
    if (notifier.watchdog_interval() != absl::InfiniteDuration()) {
      // Silence is the alarm: systemd then ends the process and starts another.
      if (hooks.alive()) {
        notifier.Watchdog();
      } else {
        CISTERN_LOG_EVERY(Error, absl::Seconds(10), "a thread hangs: the watchdog is not fed");
      }
    }
    if (clock.Mono() < status_due) continue;
    status_due = clock.Mono() + kStatusInterval;
    std::string status = hooks.status();
    if (status == told) continue;
    notifier.Status(status);
    told = std::move(status);
  }
}

}  // namespace

int ServeUntilStopped(ShutdownSignal& shutdown, const Notifier& notifier, Clock& clock,
                      const ServiceHooks& hooks) {
  notifier.Ready(hooks.status());
  const int signal = AwaitStop(shutdown, notifier, clock, hooks);
  notifier.Stopping("stopping: waiting for calls in progress");
  std::atomic<bool> stopped{false};
  std::thread impatience([&] {
    int more = 0;
    while (!stopped.load(std::memory_order_acquire)) {
      if (shutdown.WaitSignal(kStopPoll) == 0) continue;
      if (++more == 1) {
        CISTERN_LOG(Warning, "another signal: not waiting for calls in progress");
        hooks.hurry();
        continue;
      }
      CISTERN_LOG(Error, "a third signal: ending at once");
      _exit(kExitFailed);
    }
  });
  hooks.stop();
  stopped.store(true, std::memory_order_release);
  impatience.join();
  return signal;
}

}  // namespace cistern
