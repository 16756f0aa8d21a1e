#include "base/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/build_info.h"
#include "base/config.h"
#include "base/fault.h"
#include "base/status.h"

namespace cistern {

DaemonFlags ParseDaemonFlags(const DaemonInfo& info, int argc, char** argv, int* exit_code) {
  *exit_code = -1;
  DaemonFlags flags;
  std::vector<std::string> sets;
  std::vector<std::string> faults;
  bool enable_faults = false;
  CLI::App app(info.about, info.name);
  app.set_version_flag("--version", absl::StrCat(info.name, " ", std::string(SoftwareVersion()),
                                                 " (", BuildMode(), ", ", CommitId(), ")"));
  app.add_option("-c,--config", flags.config_path, "the TOML configuration file");
  app.add_option("--set", sets, "override a key: --set data_port=0 --set log.level=debug");
  if (info.has_init) {
    app.add_flag("--init", flags.init,
                 "create the data folder, the pool id and the token, then exit");
  }
  app.add_flag("--describe-metrics", flags.describe_metrics,
               "print the table of the metrics in Markdown, then exit");
  app.add_option("--fault", faults, "arm a fault point (tests): NAME:ACTION[:COUNT[:SKIP]]");
  app.add_flag("--enable-faults", enable_faults, "allow --fault");
  app.footer([&info] {
    return absl::StrCat(
        "\nConfiguration keys:\n", DescribeConfig(info.config),
        "\nExit codes: 0 stopped as asked, 1 failed while running, 2 wrong flags or "
        "configuration, 3 could not start.");
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    *exit_code = app.exit(e) == 0 ? kExitOk : kExitUsage;
    return flags;
  }
  const auto refuse = [&](std::string_view why) {
    std::cerr << info.name << ": " << why << "\n";
    *exit_code = kExitUsage;
  };
  for (const std::string& set : sets) {
    const size_t eq = set.find('=');
    if (eq == std::string::npos || eq == 0) {
      refuse(absl::StrCat("--set takes key=value, not '", set, "'"));
      return flags;
    }
    flags.overrides.emplace_back(set.substr(0, eq), set.substr(eq + 1));
  }
  if (!faults.empty() && !enable_faults) {
    refuse("--fault is for tests and needs --enable-faults");
    return flags;
  }
  for (const std::string& fault : faults) {
    if (absl::Status s = ArmFault(fault); !s.ok()) {
      refuse(std::string(s.message()));
      return flags;
    }
  }
  return flags;
}

ShutdownSignal::ShutdownSignal() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  CISTERN_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  request_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CISTERN_CHECK(signal_fd_ >= 0 && request_fd_ >= 0);
}

ShutdownSignal::~ShutdownSignal() {
  close(signal_fd_);
  close(request_fd_);
}

namespace {

int PollMs(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return -1;
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
}

int TakeSignal(int signal_fd) {
  signalfd_siginfo info;
  if (read(signal_fd, &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace

int ShutdownSignal::Wait(absl::Duration timeout) {
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {request_fd_, POLLIN, 0}};
  if (poll(fds, 2, PollMs(timeout)) <= 0) return 0;
  if (fds[1].revents != 0) return -1;
  return TakeSignal(signal_fd_);
}

int ShutdownSignal::WaitSignal(absl::Duration timeout) {
  pollfd fd = {signal_fd_, POLLIN, 0};
  return poll(&fd, 1, PollMs(timeout)) <= 0 ? 0 : TakeSignal(signal_fd_);
}

void ShutdownSignal::Request() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(request_fd_, &one, sizeof(one));
}

absl::Status MakeDirs(const std::string& dir) {
  for (size_t i = 1; i <= dir.size(); ++i) {
    if (i != dir.size() && dir[i] != '/') continue;
    const std::string part = dir.substr(0, i);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("cannot create the folder ", part));
    }
  }
  struct stat st;
  if (stat(dir.c_str(), &st) != 0) return ErrnoStatus(errno, dir);
  if (!S_ISDIR(st.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(dir, " is not a folder"));
  }
  return absl::OkStatus();
}

absl::Status WriteEndpoints(const std::string& dir, std::string_view json) {
  const std::string path = dir + "/endpoints.json";
  const std::string temporary = absl::StrCat(path, ".", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", temporary));
  size_t done = 0;
  while (done < json.size()) {
    const ssize_t n = write(fd, json.data() + done, json.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = errno;
      close(fd);
      unlink(temporary.c_str());
      return ErrnoStatus(error, absl::StrCat("cannot write ", temporary));
    }
    done += static_cast<size_t>(n);
  }
  close(fd);
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

void RemoveEndpoints(const std::string& dir) { unlink((dir + "/endpoints.json").c_str()); }

bool IsLoopbackAddress(std::string_view address) {
  const absl::string_view a(address.data(), address.size());
  return a == "localhost" || a == "::1" || absl::StartsWith(a, "127.");
}

}  // namespace cistern
