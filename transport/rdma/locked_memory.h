// The limit of memory that a process may lock, which bounds what it can register with RDMA devices.
#ifndef CISTERN_TRANSPORT_RDMA_LOCKED_MEMORY_H_
#define CISTERN_TRANSPORT_RDMA_LOCKED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cistern::transport::rdma {

struct LockedMemory {
  // RLIMIT_MEMLOCK; none = there is no limit for this process (unlimited, or CAP_IPC_LOCK).
  std::optional<uint64_t> limit_bytes;
  uint64_t limit_setting_bytes = 0;  // the setting itself; UINT64_MAX = unlimited
  bool exempt = false;               // has CAP_IPC_LOCK: the setting does not bind it
  // What counts against it now: VmLck and VmPin of /proc/self/status.
  uint64_t used_bytes = 0;
};
LockedMemory ReadLockedMemory();

// Why `more` bytes could not be locked, and what to do, if the limit is why; else "".
std::string LockedMemoryAdvice(size_t more);

namespace internal {
// From the text of /proc/self/status, and the setting.
LockedMemory ParseLockedMemory(const std::string& status, uint64_t setting_bytes);
std::string LockedMemoryAdvice(const LockedMemory& now, size_t more);
}  // namespace internal

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_LOCKED_MEMORY_H_
