// The whole screen of a terminal, for as long as the object lives.
#ifndef CISTERN_TOOLS_CTL_TERMINAL_H_
#define CISTERN_TOOLS_CTL_TERMINAL_H_

#include <termios.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cistern::ctl {

// Takes keys one by one and unechoed, shows pages on the alternate screen, and gives the terminal
// back as it was: at the end, and when SIGINT, SIGTERM or SIGHUP ask for it. One at a time; one
// thread.
class Terminal {
 public:
  // FailedPrecondition: one of the two is no terminal.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open(int in_fd, int out_fd);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Shows the lines, cut to what fits; `footer` on the last row.
  void Show(const std::vector<std::string>& lines, const std::string& footer);

  enum class Event {
    kTimeout,
    kKey,    // key() has it
    kWake,   // Wake() was called
    kSize,   // the window has another size
    kLeave,  // a signal asks to end, or the terminal has gone
  };
  Event Wait(absl::Duration timeout);
  char key() const { return key_; }
  // Ends Wait() with kWake. From any thread, until the object is destroyed.
  void Wake();

 private:
  Terminal(int in_fd, int out_fd) : in_fd_(in_fd), out_fd_(out_fd) {}
  void Write(const std::string& bytes);

  const int in_fd_;
  const int out_fd_;
  termios before_{};
  bool raw_ = false;
  bool gone_ = false;
  char key_ = 0;
};

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_TERMINAL_H_
