// cistern-master: flags, configuration, signals. What it does is in master_daemon.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/ops/notify.h"
#include "base/ops/service.h"
#include "master/master_daemon.h"
#include "master/metrics.h"
#include "master/pool_folder.h"
#include "master/settings.h"
#include "proto/config.pb.h"

namespace cistern::master {
namespace {

DaemonInfo Info() {
  DaemonInfo info;
  info.name = "cistern-master";
  info.about =
      "The master of a pool: knows which store holds which chunk, places new ones, evicts old "
      "ones. "
      "A first start with an empty data_dir makes a pool; --init does so too, makes the token, and "
      "exits. With a token: --config FILE --init first, then --config FILE.";
  info.config = config::MasterConfig::descriptor();
  info.has_init = true;
  return info;
}

int Refuse(int exit_code, const absl::Status& why) {
  std::cerr << "cistern-master: " << why.message() << "\n";
  return exit_code;
}

int Init(const config::MasterConfig& config) {
  const absl::StatusOr<PoolMade> made = InitPool(config, Clock::Real());
  if (!made.ok()) return Refuse(kExitCannotStart, made.status());
  std::cout << "pool " << made->pool_id.ToHex() << (made->pool_created ? " made in " : " is in ")
            << config.data_dir() << "\n";
  if (!config.pool_token_file().empty()) {
    std::cout << "token " << config.pool_token_file()
              << (made->token_created ? " made: copy it to every store and client\n"
                                      : " is there\n");
  }
  return kExitOk;
}

int Serve(const config::MasterConfig& config, ShutdownSignal& shutdown, const Notifier& notifier) {
  const absl::StatusOr<std::string> token = ReadToken(config);
  if (!token.ok()) return Refuse(kExitUsage, token.status());
  const std::string run_dir = RunDir(config);
  std::atomic<bool> fatal = false;
  MasterDaemon::Options options;
  options.config = config;
  options.token = *token;
  options.on_fatal = [&](const absl::Status& why) {
    CISTERN_LOG(Error, "must stop: ", why.message());
    fatal = true;
    shutdown.Request();
  };
  auto daemon = MasterDaemon::Start(std::move(options));
  if (!daemon.ok()) return Refuse(kExitCannotStart, daemon.status());
  absl::Status announced = MakeDirs(run_dir);
  if (announced.ok()) announced = WriteEndpoints(run_dir, (*daemon)->EndpointsJson());
  if (!announced.ok()) return Refuse(kExitCannotStart, announced);
  CISTERN_LOG(Info, "serving pool ", (*daemon)->pool_id().ToHex(), " in epoch ",
              (*daemon)->epoch().value, ": clients on ", config.listen_address(), ":",
              (*daemon)->data_port(), ", stores and cisternctl on ", (*daemon)->grpc_port(),
              (*daemon)->http_port() == 0
                  ? ""
                  : absl::StrCat(", HTTP on ", config.http_address(), ":", (*daemon)->http_port()));
  ServiceHooks hooks;
  hooks.alive = [&] { return (*daemon)->Alive(); };
  hooks.status = [&] { return (*daemon)->StatusLine(); };
  hooks.stop = [&] {
    CISTERN_LOG(Info, "stopping");
    RemoveEndpoints(run_dir);
    (*daemon)->Stop();
  };
  hooks.hurry = [&] { (*daemon)->Hurry(); };
  const int signal = ServeUntilStopped(shutdown, notifier, Clock::Real(), hooks);
  CISTERN_LOG(Info, "stopped", signal > 0 ? absl::StrCat(" on signal ", signal) : "");
  return fatal ? kExitFailed : kExitOk;
}

int Main(int argc, char** argv) {
  ShutdownSignal shutdown;
  SetLogSink(StderrSink());
  const DaemonInfo info = Info();
  int exit_code = -1;
  const DaemonFlags flags = ParseDaemonFlags(info, argc, argv, &exit_code);
  if (exit_code >= 0) return exit_code;
  if (flags.describe_metrics) {
    std::cout << DescribeMetrics(MasterMetrics());
    return kExitOk;
  }
  config::MasterConfig config;
  const absl::StatusOr<LoadedConfig> loaded =
      flags.config_path.empty() ? LoadConfig("", "", flags.overrides, &config)
                                : LoadConfigFile(flags.config_path, flags.overrides, &config);
  if (!loaded.ok()) return Refuse(kExitUsage, loaded.status());
  if (absl::Status s = CheckSettings(config); !s.ok()) return Refuse(kExitUsage, s);
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(config.log().level(), &level);
  SetLogLevel(level);
  if (flags.init) return Init(config);
  const Notifier notifier({.notify_socket = getenv("NOTIFY_SOCKET"),
                           .watchdog_usec = getenv("WATCHDOG_USEC"),
                           .watchdog_pid = getenv("WATCHDOG_PID")});
  CISTERN_LOG(Info, info.name, " ", std::string(SoftwareVersion()), ", configuration:\n",
              loaded->ToString());
  return Serve(config, shutdown, notifier);
}

}  // namespace
}  // namespace cistern::master

int main(int argc, char** argv) { return cistern::master::Main(argc, argv); }
