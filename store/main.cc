// cistern-store: exports one host's memory to the pool.
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/ops/notify.h"
#include "base/ops/service.h"
#include "store/daemon.h"
#include "store/metrics.h"

namespace {

using cistern::LogLevel;

int ExitCodeOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ? cistern::kExitUsage
                                                             : cistern::kExitCannotStart;
}

}  // namespace

int main(int argc, char** argv) {
  cistern::ShutdownSignal signal;
  cistern::SetLogSink(cistern::StderrSink());
  const cistern::DaemonInfo info = {
      "cistern-store",
      "Exports this host's DRAM to a Cistern pool. It keeps committed chunks over a restart of the "
      "process where its segments are files on tmpfs.",
      cistern::config::StoreConfig::descriptor(), /*has_init=*/false};
  int exit_code = -1;
  const cistern::DaemonFlags flags = cistern::ParseDaemonFlags(info, argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  if (flags.describe_metrics) {
    std::cout << cistern::DescribeMetrics(cistern::store::StoreMetrics());
    return cistern::kExitOk;
  }

  cistern::config::StoreConfig config;
  const auto loaded = flags.config_path.empty()
                          ? cistern::LoadConfig("", "", flags.overrides, &config)
                          : cistern::LoadConfigFile(flags.config_path, flags.overrides, &config);
  absl::Status status = loaded.status();
  if (status.ok()) status = cistern::store::StoreDaemon::CheckConfig(config);
  if (!status.ok()) {
    CISTERN_LOG(Error, status.message());
    return cistern::kExitUsage;
  }
  LogLevel level = LogLevel::kInfo;
  if (cistern::ParseLogLevel(config.log().level(), &level)) cistern::SetLogLevel(level);
  CISTERN_LOG(Info, "cistern-store ", std::string(cistern::SoftwareVersion()),
              " starts; configuration in force:\n", loaded->ToString());

  const cistern::Notifier notifier({.notify_socket = getenv("NOTIFY_SOCKET"),
                                    .watchdog_usec = getenv("WATCHDOG_USEC"),
                                    .watchdog_pid = getenv("WATCHDOG_PID")});
  notifier.Status("starting: opening segments; a new store waits for its master first");
  // Before it has met its pool a store waits for the master: a signal must end that too.
  int stopped_by = 0;
  const auto stop = [&] {
    if (stopped_by == 0) stopped_by = signal.Wait(absl::ZeroDuration());
    return stopped_by != 0;
  };
  auto daemon = cistern::store::StoreDaemon::Start(config, cistern::Clock::Real(), stop);
  if (!daemon.ok()) {
    if (stopped_by > 0) return cistern::kExitOk;
    CISTERN_LOG(Error, daemon.status().message());
    return ExitCodeOf(daemon.status());
  }
  const std::string run_dir = config.run_dir().empty() ? config.data_dir() : config.run_dir();
  status = cistern::WriteEndpoints(run_dir, (*daemon)->endpoints_json());
  if (!status.ok()) {
    CISTERN_LOG(Error, status.message());
    return cistern::kExitCannotStart;
  }
  CISTERN_LOG(Info, "serving on port ", (*daemon)->data_port(),
              (*daemon)->http_port() == 0
                  ? ""
                  : absl::StrCat(", HTTP on ", config.http_address(), ":", (*daemon)->http_port()));
  cistern::ServiceHooks hooks;
  hooks.alive = [&] { return (*daemon)->Alive(); };
  hooks.status = [&] { return (*daemon)->StatusLine(); };
  hooks.stop = [&] {
    CISTERN_LOG(Info, "stopping");
    cistern::RemoveEndpoints(run_dir);
    (*daemon)->Stop();
  };
  hooks.hurry = [&] { (*daemon)->Hurry(); };
  const int signo = cistern::ServeUntilStopped(signal, notifier, cistern::Clock::Real(), hooks);
  CISTERN_LOG(Info, "stopped on signal ", signo);
  return cistern::kExitOk;
}
