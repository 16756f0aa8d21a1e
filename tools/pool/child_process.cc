#include "tools/pool/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::pool {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(5);
constexpr size_t kMaxTailBytes = 64 << 10;

// Runs in the child between fork and exec: only what a signal handler may call.
[[noreturn]] void BecomeProgram(char* const* argv, int log_fd, int null_fd, pid_t parent,
                                bool die_with_parent) {
  setpgid(0, 0);
  if (die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(Options options, Clock& clock) {
  CISTERN_CHECK(!options.argv.empty());
  if (access(options.argv[0].c_str(), X_OK) != 0) {
    return ErrnoStatus(errno, std::string(absl::StrCat("cannot run ", options.argv[0])));
  }
  const int log_fd =
      open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log_fd < 0) {
    return ErrnoStatus(errno, std::string(absl::StrCat("cannot write ", options.log_path)));
  }
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> argv;
  for (const std::string& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(argv.data(), log_fd, null_fd, parent, options.die_with_parent);
  const int error = errno;
  close(log_fd);
  close(null_fd);
  if (pid < 0) return ErrnoStatus(error, std::string(absl::StrCat("cannot start ", options.name)));
  setpgid(pid, pid);  // here too: whoever of the two comes first
  return std::unique_ptr<ChildProcess>(new ChildProcess(std::move(options), pid, clock));
}

ChildProcess::~ChildProcess() {
  if (Running()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

bool ChildProcess::Running() {
  if (pid_ < 0) return false;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return true;
  exit_code_ = ended == pid_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  signal_ = ended == pid_ && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  pid_ = -1;
  return false;
}

std::string ChildProcess::Fate() {
  if (Running()) return "is running";
  if (signal_ != 0) return absl::StrCat("was ended by signal ", signal_);
  return absl::StrCat("ended with exit code ", exit_code_);
}

bool ChildProcess::WaitFor(absl::Duration timeout) {
  const MonoTime end = clock_.Mono() + timeout;
  while (Running()) {
    if (clock_.Mono() >= end) return false;
    clock_.SleepFor(kPollInterval);
  }
  return true;
}

void ChildProcess::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

bool ChildProcess::Stop(absl::Duration grace) {
  Signal(SIGTERM);
  Signal(SIGCONT);  // a stopped process would not hear it
  if (WaitFor(grace)) return true;
  Signal(SIGKILL);
  WaitFor(absl::Seconds(10));
  return false;
}

std::string ChildProcess::LogTail(size_t lines) const {
  return TailOfFile(options_.log_path, lines);
}

std::string TailOfFile(const std::string& path, size_t lines) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - std::streamoff{kMaxTailBytes});
  in.seekg(from);
  std::string text(static_cast<size_t>(size - from), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (size_t found = 0; at > 0; --at) {
    if (text[at - 1] == '\n' && ++found == lines) break;
  }
  return text.substr(at);
}

}  // namespace cistern::pool
