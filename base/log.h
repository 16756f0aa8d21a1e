// Logging. Lines go to the process's sink: standard error in daemons and tools, nowhere in the
// client library until the caller sets one. ERROR: someone must act. WARNING: degraded, handled.
// INFO: lifecycle. Nothing per chunk at INFO; repeated lines go through CISTERN_LOG_EVERY.
#ifndef CISTERN_BASE_LOG_H_
#define CISTERN_BASE_LOG_H_

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cistern {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// Called from any thread, one call at a time; must not call back into the library. (Lines that a
// sink itself logs are dropped; setting a sink from within one waits for ever.)
using LogSink =
    std::function<void(LogLevel, std::string_view file, int line, std::string_view text)>;

// Replaces the sink; nullptr drops every line. Thread-safe.
void SetLogSink(LogSink sink);
// The daemons' sink: "2026-01-02T03:04:05.678Z W store.cc:12 text" on standard error (glog's
// severities; the systemd journal adds the rest).
LogSink StderrSink();
// One line of that form, newline included.
std::string FormatLogLine(absl::Time when, LogLevel level, std::string_view file, int line,
                          std::string_view text);
void SetLogLevel(LogLevel level);
bool ParseLogLevel(std::string_view name, LogLevel* out);
// Whether a line of `level` would reach a sink.
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* file, int line, std::string_view text);

// True at most once per `period`, counting what it held back: see CISTERN_LOG_EVERY.
class LogRateLimit {
 public:
  bool Allow(absl::Duration period, uint64_t* suppressed);
  // The same at the monotonic time `now` (since the clock's origin, not negative).
  bool AllowAt(absl::Duration now, absl::Duration period, uint64_t* suppressed);

 private:
  std::atomic<int64_t> next_ns_{0};
  std::atomic<uint64_t> held_{0};
};

}  // namespace cistern

// CISTERN_LOG(Info, "store ", id, " mounted ", n, " segments"): StrCat arguments.
#define CISTERN_LOG(level, ...)                                             \
  do {                                                                      \
    if (::cistern::LogEnabled(::cistern::LogLevel::k##level)) {             \
      ::cistern::LogLine(::cistern::LogLevel::k##level, __FILE__, __LINE__, \
                         ::absl::StrCat(__VA_ARGS__));                      \
    }                                                                       \
  } while (false)

// The same, at most once per period from this place.
#define CISTERN_LOG_EVERY(level, period, ...)                                                   \
  do {                                                                                          \
    static ::cistern::LogRateLimit cistern_limit_;                                              \
    uint64_t cistern_held_ = 0;                                                                 \
    if (::cistern::LogEnabled(::cistern::LogLevel::k##level) &&                                 \
        cistern_limit_.Allow((period), &cistern_held_)) {                                       \
      ::cistern::LogLine(                                                                       \
          ::cistern::LogLevel::k##level, __FILE__, __LINE__,                                    \
          ::absl::StrCat(__VA_ARGS__, cistern_held_ == 0                                        \
                                          ? ""                                                  \
                                          : ::absl::StrCat(" (", cistern_held_, " like it)"))); \
    }                                                                                           \
  } while (false)

#endif  // CISTERN_BASE_LOG_H_
