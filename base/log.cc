#include "base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace cistern {
namespace {

// Never destroyed: threads may still log while the process ends.
struct Sinks {
  Mutex mutex;
  LogSink sink ABSL_GUARDED_BY(mutex);
  const Sinks* parents = nullptr;  // reachable: not leaked
};
std::atomic<Sinks*> g_sinks{nullptr};

// Read without the lock, so that a line nobody wants costs two loads.
std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};
std::atomic<bool> g_has_sink{false};

// In a fork's child: a thread that is not here may hold the lock, or be in the sink. The child logs
// nothing until it sets a sink of its own.
void ForgetSinksAfterFork() {
  auto* const sinks = new Sinks;
  sinks->parents = g_sinks.load(std::memory_order_relaxed);
  g_has_sink.store(false, std::memory_order_relaxed);
  g_sinks.store(sinks, std::memory_order_release);
}

Sinks& GetSinks() {
  static const bool once = [] {
    g_sinks.store(new Sinks, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, ForgetSinksAfterFork);
    return true;
  }();
  (void)once;
  return *g_sinks.load(std::memory_order_acquire);
}

// A sink that logs would wait for itself: its lines are dropped.
thread_local bool t_in_sink = false;

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

void WriteToStderr(LogLevel level, std::string_view file, int line, std::string_view text) {
  const std::string out = FormatLogLine(Clock::Real().Wall(), level, file, line, text);
  // One write, so that lines of several processes on one terminal do not mix. A reader that is
  // gone costs the line, nothing else.
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = write(STDERR_FILENO, out.data() + done, out.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

}  // namespace

void SetLogSink(LogSink sink) {
  Sinks& sinks = GetSinks();
  MutexLock lock(sinks.mutex);
  g_has_sink.store(sink != nullptr, std::memory_order_relaxed);
  sinks.sink = std::move(sink);
}

LogSink StderrSink() { return WriteToStderr; }

std::string FormatLogLine(absl::Time when, LogLevel level, std::string_view file, int line,
                          std::string_view text) {
  static constexpr char kLetters[] = "DIWE";
  return absl::StrCat(absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ ", when, absl::UTCTimeZone()),
                      std::string(1, kLetters[static_cast<int>(level)]), " ",
                      std::string(BaseName(file)), ":", line, " ", std::string(text), "\n");
}

void SetLogLevel(LogLevel level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

bool ParseLogLevel(std::string_view name, LogLevel* out) {
  static constexpr std::pair<std::string_view, LogLevel> kNames[] = {
      {"debug", LogLevel::kDebug},
      {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning},
      {"error", LogLevel::kError},
  };
  for (const auto& [known, level] : kNames) {
    if (name == known) {
      *out = level;
      return true;
    }
  }
  return false;
}

bool LogEnabled(LogLevel level) {
  return g_has_sink.load(std::memory_order_relaxed) &&
         static_cast<int>(level) >= g_level.load(std::memory_order_relaxed);
}

void LogLine(LogLevel level, const char* file, int line, std::string_view text) {
  if (t_in_sink) return;
  Sinks& sinks = GetSinks();
  // Held across the sink on purpose: lines must not interleave, and a sink that was replaced must
  // not be called any more once SetLogSink returned (its owner may be gone).
  MutexLock lock(sinks.mutex);
  if (!sinks.sink) return;
  t_in_sink = true;
  sinks.sink(level, file, line, text);
  t_in_sink = false;
}

bool LogRateLimit::Allow(absl::Duration period, uint64_t* suppressed) {
  return AllowAt(Clock::Real().Mono().since_origin, period, suppressed);
}

bool LogRateLimit::AllowAt(absl::Duration now, absl::Duration period, uint64_t* suppressed) {
  const int64_t now_ns = absl::ToInt64Nanoseconds(now);
  int64_t next_ns = next_ns_.load(std::memory_order_relaxed);
  // Of threads that come at once, the one that moves the mark writes the line.
  if (now_ns < next_ns ||
      !next_ns_.compare_exchange_strong(next_ns, absl::ToInt64Nanoseconds(now + period),
                                        std::memory_order_relaxed)) {
    held_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *suppressed = held_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace cistern
