#include "transport/rdma/locked_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cistern::transport::rdma {
namespace {

constexpr int kCapIpcLock = 14;  // CAP_IPC_LOCK of linux/capability.h

}  // namespace

namespace internal {

LockedMemory ParseLockedMemory(const std::string& status, uint64_t setting_bytes) {
  LockedMemory out;
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    if (words.size() < 2) continue;
    uint64_t number = 0;
    if (words[0] == "VmLck:" || words[0] == "VmPin:") {
      if (absl::SimpleAtoi(words[1], &number)) out.used_bytes += number * 1024;
    } else if (words[0] == "CapEff:") {
      if (absl::SimpleHexAtoi(words[1], &number)) out.exempt = (number >> kCapIpcLock & 1) != 0;
    }
  }
  out.limit_setting_bytes = setting_bytes;
  if (setting_bytes != UINT64_MAX && !out.exempt) out.limit_bytes = setting_bytes;
  return out;
}

std::string LockedMemoryAdvice(const LockedMemory& now, size_t more) {
  if (!now.limit_bytes || now.used_bytes + more <= *now.limit_bytes) return "";
  return absl::StrCat("this process may lock ", *now.limit_bytes,
                      " bytes of memory and has locked ", now.used_bytes,
                      ": raise the limit (\"ulimit -l unlimited\" in its shell, "
                      "\"LimitMEMLOCK=infinity\" in its systemd unit, \"--ulimit memlock=-1\" for "
                      "its container)");
}

}  // namespace internal

LockedMemory ReadLockedMemory() {
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  rlimit limit = {};
  // It cannot fail; were it to, no limit is known.
  const bool unlimited = getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  return internal::ParseLockedMemory(status.str(), unlimited ? UINT64_MAX : limit.rlim_cur);
}

std::string LockedMemoryAdvice(size_t more) {
  return internal::LockedMemoryAdvice(ReadLockedMemory(), more);
}

}  // namespace cistern::transport::rdma
