#include "base/fault.h"

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/wall_offset.h"

namespace cistern {
namespace {

enum class Action { kError, kKill, kStop, kDelay, kJump };

constexpr char kWallClock[] = "clock.wall";

struct Fault {
  Action action = Action::kError;
  absl::Duration delay;  // of kDelay and kJump
  uint64_t count = 1;    // 0 = for ever
  uint64_t skip = 0;
  uint64_t passed = 0;  // of `skip`
  uint64_t acted = 0;
};

// Never destroyed: threads may still pass fault points while the process ends.
struct Faults {
  Mutex mutex;
  std::map<std::string, Fault, std::less<>> by_name ABSL_GUARDED_BY(mutex);
};
Faults& GetFaults() {
  static Faults* const faults = new Faults;
  return *faults;
}

absl::Status BadSpec(std::string_view spec, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("fault \"", std::string(spec),
                                                 "\": ", std::string(why),
                                                 "; expected name:action[:count[:skip]]"));
}

absl::Status ParseAction(std::string_view spec, std::string_view text, Fault* fault) {
  static constexpr std::string_view kDelay = "delay=";
  static constexpr std::string_view kJump = "jump=";
  if (text == "error") {
    fault->action = Action::kError;
  } else if (text == "kill") {
    fault->action = Action::kKill;
  } else if (text == "stop") {
    fault->action = Action::kStop;
  } else if (text.substr(0, kDelay.size()) == kDelay) {
    fault->action = Action::kDelay;
    if (!absl::ParseDuration(std::string(text.substr(kDelay.size())), &fault->delay) ||
        fault->delay < absl::ZeroDuration() || fault->delay > absl::Hours(1)) {
      return BadSpec(spec, "the delay is a time like 20ms, at most 1h");
    }
  } else if (text.substr(0, kJump.size()) == kJump) {
    fault->action = Action::kJump;
    if (!absl::ParseDuration(std::string(text.substr(kJump.size())), &fault->delay) ||
        absl::AbsDuration(fault->delay) > absl::Hours(1'000'000)) {
      return BadSpec(spec, "the jump is a time like -1h");
    }
    if (spec.substr(0, spec.find(':')) != kWallClock) {
      return BadSpec(spec, "only clock.wall can jump");
    }
  } else {
    return BadSpec(spec, "the action is error, kill, stop, delay=TIME or jump=TIME");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Duration WallOffset();

absl::Status ArmFault(std::string_view spec) {
  const std::vector<std::string> fields = absl::StrSplit(std::string(spec), ':');
  if (fields.size() < 2 || fields.size() > 4) return BadSpec(spec, "it has 2 to 4 fields");
  if (fields[0].empty()) return BadSpec(spec, "the name is empty");
  Fault fault;
  if (absl::Status status = ParseAction(spec, fields[1], &fault); !status.ok()) return status;
  if (fields.size() > 2 && !absl::SimpleAtoi(fields[2], &fault.count)) {
    return BadSpec(spec, "the count is a number");
  }
  if (fields.size() > 3 && !absl::SimpleAtoi(fields[3], &fault.skip)) {
    return BadSpec(spec, "the number to skip is a number");
  }
  Faults& faults = GetFaults();
  MutexLock lock(faults.mutex);
  faults.by_name[fields[0]] = fault;
  internal::g_faults_armed.store(true, std::memory_order_relaxed);
  if (fields[0] == kWallClock) {
    internal::g_wall_offset.store(&WallOffset, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

void DisarmFaults() {
  Faults& faults = GetFaults();
  MutexLock lock(faults.mutex);
  faults.by_name.clear();
  internal::g_faults_armed.store(false, std::memory_order_relaxed);
  internal::g_wall_offset.store(nullptr, std::memory_order_relaxed);
}

uint64_t FaultActions(std::string_view name) {
  Faults& faults = GetFaults();
  MutexLock lock(faults.mutex);
  const auto it = faults.by_name.find(name);
  return it == faults.by_name.end() ? 0 : it->second.acted;
}

namespace internal {

std::atomic<bool> g_faults_armed{false};

namespace {

// What the armed point does this time. False: nothing.
bool Pass(std::string_view name, Action* action, absl::Duration* delay) {
  Faults& faults = GetFaults();
  MutexLock lock(faults.mutex);
  const auto it = faults.by_name.find(name);
  if (it == faults.by_name.end()) return false;
  Fault& fault = it->second;
  if (fault.passed < fault.skip) {
    ++fault.passed;
    return false;
  }
  if (fault.count != 0 && fault.acted == fault.count) return false;
  ++fault.acted;
  *action = fault.action;
  *delay = fault.delay;
  return true;
}

}  // namespace

bool FaultHit(std::string_view name) {
  Action action;
  absl::Duration delay;
  if (!Pass(name, &action, &delay)) return false;
  switch (action) {
    case Action::kError:
      return true;
    case Action::kKill:
      kill(getpid(), SIGKILL);
      return false;
    case Action::kStop:
      // To this thread, which then gets no further: a signal to the process may be taken by another
      // one, and this would go on for a while.
      raise(SIGSTOP);
      return false;
    case Action::kDelay:
      Clock::Real().SleepFor(delay);
      return false;
    case Action::kJump:
      return false;
  }
  return false;
}

}  // namespace internal

absl::Duration WallOffset() {
  Action action;
  absl::Duration jump;
  if (!internal::Pass(kWallClock, &action, &jump) || action != Action::kJump) {
    return absl::ZeroDuration();
  }
  return jump;
}

}  // namespace cistern
