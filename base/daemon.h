// What both daemons' main() share: flags, shutdown signals, the endpoints file.
#ifndef CISTERN_BASE_DAEMON_H_
#define CISTERN_BASE_DAEMON_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/version.h"
#include "google/protobuf/message.h"

namespace cistern {

// Exit codes of the daemons.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;       // it ran and had to stop; the last log line says why
inline constexpr int kExitUsage = 2;        // flags or configuration are wrong: do not restart
inline constexpr int kExitCannotStart = 3;  // port in use, folder in use, no space, ...

struct DaemonInfo {
  std::string name;   // "cistern-master"
  std::string about;  // one paragraph for --help
  const google::protobuf::Descriptor* config = nullptr;
  bool has_init = false;
};

struct DaemonFlags {
  std::string config_path;                                     // empty: defaults and --set only
  std::vector<std::pair<std::string, std::string>> overrides;  // --set key=value
  bool init = false;
  bool describe_metrics = false;  // print the table of metrics and exit
};

// Parses argv. Prints and sets *exit_code (>= 0) for --help, --version and wrong flags: the caller
// returns it. Arms fault points from --fault when --enable-faults is there too.
DaemonFlags ParseDaemonFlags(const DaemonInfo& info, int argc, char** argv, int* exit_code);

// Makes SIGTERM and SIGINT waitable. Construct it first in main(), before any thread starts, so
// that every thread inherits the mask; SIGPIPE is ignored. One per process.
class ShutdownSignal {
 public:
  ShutdownSignal();
  ~ShutdownSignal();
  // Returns the signal's number, 0 when `timeout` passed, or -1 after Request().
  int Wait(absl::Duration timeout);
  // The same, but for signals alone: Request() does not end it. One thread at a time waits.
  int WaitSignal(absl::Duration timeout);
  // Ends Wait() from another thread: a part of the daemon cannot go on.
  void Request();

 private:
  int signal_fd_ = -1;
  int request_fd_ = -1;
};

// Writes `json` to DIR/endpoints.json atomically; tests and tools read the ports there.
absl::Status WriteEndpoints(const std::string& dir, std::string_view json);
void RemoveEndpoints(const std::string& dir);

// mkdir -p with mode 0700 for what is created.
absl::Status MakeDirs(const std::string& dir);

// True for 127.0.0.0/8, ::1 and "localhost".
bool IsLoopbackAddress(std::string_view address);

}  // namespace cistern

#endif  // CISTERN_BASE_DAEMON_H_
