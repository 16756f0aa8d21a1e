// What the kernel says of a process and of this machine.
#ifndef CISTERN_TOOLS_POOLBENCH_PROCESS_STATS_H_
#define CISTERN_TOOLS_POOLBENCH_PROCESS_STATS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cistern::poolbench {

// From the text of /proc/PID/stat: user and system time of all its threads, in clock ticks.
// InvalidArgument: it is not such a text.
absl::StatusOr<uint64_t> CpuTicksOf(const std::string& stat);
// From the text of /proc/PID/statm.
absl::StatusOr<uint64_t> ResidentPagesOf(const std::string& statm);

// NotFound: no such process.
absl::StatusOr<double> CpuSeconds(pid_t pid);
absl::StatusOr<uint64_t> ResidentBytes(pid_t pid);

// "" when it cannot be read.
std::string ReadTextFile(const std::string& path);

// "Intel ..., 2 cores, 23.5 GiB", from the texts of /proc/cpuinfo and /proc/meminfo.
std::string DescribeMachine(const std::string& cpuinfo, const std::string& meminfo, int cores);
// The same of this machine.
std::string ThisMachine();
// "Linux 6.1.0".
std::string ThisKernel();
// Of the last minute; 0 when it cannot be read.
double LoadAverage();

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_PROCESS_STATS_H_
