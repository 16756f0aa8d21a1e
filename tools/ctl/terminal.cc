#include "tools/ctl/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ctl/top_render.h"

namespace cistern::ctl {
namespace {

constexpr char kEnterScreen[] = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr char kLeaveScreen[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kClearRest[] = "\x1b[J";
constexpr char kClearLine[] = "\x1b[K";
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
constexpr char kWakeByte = 0;

// A pipe to ourselves, one end of which a signal handler may write to: the signal's number, or
// kWakeByte. Non-blocking: when it is full, enough is told.
int g_pipe[2] = {-1, -1};
struct sigaction g_before[std::size(kSignals)];

void OnSignal(int signal) {
  const int saved = errno;
  const char byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t n = write(g_pipe[1], &byte, 1);
  errno = saved;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open(int in_fd, int out_fd) {
  if (isatty(in_fd) == 0 || isatty(out_fd) == 0) {
    return absl::FailedPreconditionError("input and output are no terminal");
  }
  std::unique_ptr<Terminal> terminal(new Terminal(in_fd, out_fd));
  if (tcgetattr(in_fd, &terminal->before_) != 0) return ErrnoStatus(errno, "tcgetattr");
  if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus(errno, "pipe2");
  // The handlers before the mode: whatever comes, the terminal is given back.
  struct sigaction action {};
  action.sa_handler = OnSignal;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &g_before[i]);
  }
  termios raw = terminal->before_;
  // Ctrl-C is a key; Ctrl-Z and Ctrl-S are none.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  if (tcsetattr(in_fd, TCSAFLUSH, &raw) != 0) return ErrnoStatus(errno, "tcsetattr");
  terminal->raw_ = true;
  terminal->Write(kEnterScreen);
  return terminal;
}

Terminal::~Terminal() {
  if (raw_) {
    Write(kLeaveScreen);
    // What was typed meanwhile is not for the shell.
    tcsetattr(in_fd_, TCSAFLUSH, &before_);
  }
  if (g_pipe[0] < 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
  close(g_pipe[0]);
  close(g_pipe[1]);
  g_pipe[0] = g_pipe[1] = -1;
}

void Terminal::Write(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size() && !gone_) {
    const ssize_t n = write(out_fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd fd = {out_fd_, POLLOUT, 0};
      poll(&fd, 1, 1000);
      continue;
    }
    if (n <= 0) {
      gone_ = true;
      return;
    }
    done += static_cast<size_t>(n);
  }
}

void Terminal::Show(const std::vector<std::string>& lines, const std::string& footer) {
  winsize size{};
  if (ioctl(out_fd_, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    size.ws_row = 24;
    size.ws_col = 80;
  }
  const size_t rows = size.ws_row > 1 ? size.ws_row - 1u : 0;
  std::string out = kHome;
  for (size_t i = 0; i < std::min(rows, lines.size()); ++i) {
    absl::StrAppend(&out, CutToWidth(lines[i], size.ws_col), kClearLine, "\r\n");
  }
  // In one piece, so that nothing flickers.
  absl::StrAppend(&out, kClearRest, "\x1b[", size.ws_row, ";1H\x1b[7m",
                  CutToWidth(footer, size.ws_col), "\x1b[0m");
  Write(out);
}

void Terminal::Wake() { [[maybe_unused]] const ssize_t n = write(g_pipe[1], &kWakeByte, 1); }

Terminal::Event Terminal::Wait(absl::Duration timeout) {
  if (gone_) return Event::kLeave;
  pollfd fds[2] = {{g_pipe[0], POLLIN, 0}, {in_fd_, POLLIN, 0}};
  const int64_t ms = absl::ToInt64Milliseconds(
      absl::Ceil(std::max(timeout, absl::ZeroDuration()), absl::Milliseconds(1)));
  const int n = poll(fds, 2, static_cast<int>(std::min<int64_t>(ms, 1 << 30)));
  if (n <= 0 && (n == 0 || errno == EINTR)) {
    // A signal's byte, if it was one of ours, is in the pipe now.
    if (n == 0) return Event::kTimeout;
    return Wait(absl::ZeroDuration());
  }
  if (fds[0].revents != 0) {
    char byte = 0;
    if (read(g_pipe[0], &byte, 1) != 1) return Event::kTimeout;
    if (byte == kWakeByte) return Event::kWake;
    return byte == SIGWINCH ? Event::kSize : Event::kLeave;
  }
  const ssize_t got = read(in_fd_, &key_, 1);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Event::kTimeout;
  return got == 1 ? Event::kKey : Event::kLeave;
}

}  // namespace cistern::ctl
