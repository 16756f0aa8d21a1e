// A process that a tool starts, watches and ends.
#ifndef CISTERN_TOOLS_POOL_CHILD_PROCESS_H_
#define CISTERN_TOOLS_POOL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern::pool {

// One child. It has a process group of its own (a terminal's Ctrl-C reaches only the tool, which
// then ends its children in order), its output goes to a file, its input is empty. Destroying the
// object ends the child, at once if need be, unless it was released. Not thread-safe.
class ChildProcess {
 public:
  struct Options {
    std::string name = {};               // for people
    std::vector<std::string> argv = {};  // argv[0] is the program's path
    std::string log_path = {};           // standard output and error are appended
    bool die_with_parent = true;         // ended by the kernel when the tool is killed
  };
  // NotFound: the program is not there. Other errors: the system has no room for it.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(Options options, Clock& clock);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  pid_t pid() const { return pid_; }
  bool Running();
  // Valid when not Running(): 0 to 255, or -1 when a signal ended it.
  int exit_code() const { return exit_code_; }
  // "ended with exit code 3", "was ended by signal 9", "is running".
  std::string Fate();
  // False when it still runs after `timeout`.
  bool WaitFor(absl::Duration timeout);
  void Signal(int signal);
  // SIGTERM, then SIGKILL after `grace`. False if it had to be killed.
  bool Stop(absl::Duration grace);
  // The last lines of its log.
  std::string LogTail(size_t lines = 20) const;
  // The child outlives this object.
  void Release() { pid_ = -1; }

 private:
  ChildProcess(Options options, pid_t pid, Clock& clock)
      : options_(std::move(options)), pid_(pid), clock_(clock) {}

  const Options options_;
  pid_t pid_;  // -1 when reaped or released
  Clock& clock_;
  int exit_code_ = 0;
  int signal_ = 0;
};

// The last `lines` lines of a file; "" when there is none.
std::string TailOfFile(const std::string& path, size_t lines);

}  // namespace cistern::pool

#endif  // CISTERN_TOOLS_POOL_CHILD_PROCESS_H_
