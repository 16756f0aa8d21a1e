#include "tools/poolbench/process_stats.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ctl/table.h"

namespace cistern::poolbench {
namespace {

// The first line's text after the colon where `name` is the key.
std::string FieldOf(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t from = line.find_first_not_of(" \t", colon + 1);
    if (from != std::string::npos) return line.substr(from);
  }
  return "";
}

absl::StatusOr<std::string> ReadOf(pid_t pid, const char* name) {
  std::string text = ReadTextFile(absl::StrCat("/proc/", pid, "/", name));
  if (text.empty()) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  return text;
}

}  // namespace

absl::StatusOr<uint64_t> CpuTicksOf(const std::string& stat) {
  // The program's name stands in parentheses and may hold anything: the last one ends it. Then come
  // the state (field 3) and numbers; utime and stime are fields 14 and 15.
  const size_t name_end = stat.rfind(')');
  if (name_end != std::string::npos) {
    std::istringstream in(stat.substr(name_end + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field) in >> skipped;
    uint64_t user = 0, system = 0;
    if (in >> user >> system) return user + system;
  }
  return absl::InvalidArgumentError("this is no text of /proc/PID/stat");
}

absl::StatusOr<uint64_t> ResidentPagesOf(const std::string& statm) {
  std::istringstream in(statm);
  uint64_t size = 0, resident = 0;
  if (in >> size >> resident) return resident;
  return absl::InvalidArgumentError("this is no text of /proc/PID/statm");
}

absl::StatusOr<double> CpuSeconds(pid_t pid) {
  CISTERN_ASSIGN_OR_RETURN(const std::string text, ReadOf(pid, "stat"));
  CISTERN_ASSIGN_OR_RETURN(const uint64_t ticks, CpuTicksOf(text));
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

absl::StatusOr<uint64_t> ResidentBytes(pid_t pid) {
  CISTERN_ASSIGN_OR_RETURN(const std::string text, ReadOf(pid, "statm"));
  CISTERN_ASSIGN_OR_RETURN(const uint64_t pages, ResidentPagesOf(text));
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string ReadTextFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string DescribeMachine(const std::string& cpuinfo, const std::string& meminfo, int cores) {
  std::string model = FieldOf(cpuinfo, "model name");
  if (model.empty()) model = "unknown processor";
  const uint64_t kib = std::strtoull(FieldOf(meminfo, "MemTotal").c_str(), nullptr, 10);
  return absl::StrCat(model, ", ", cores, " cores, ", ctl::Bytes(kib * 1024));
}

std::string ThisMachine() {
  return DescribeMachine(ReadTextFile("/proc/cpuinfo"), ReadTextFile("/proc/meminfo"),
                         static_cast<int>(std::thread::hardware_concurrency()));
}

std::string ThisKernel() {
  utsname names;
  if (uname(&names) != 0) return "unknown kernel";
  return absl::StrCat(names.sysname, " ", names.release);
}

double LoadAverage() { return std::strtod(ReadTextFile("/proc/loadavg").c_str(), nullptr); }

}  // namespace cistern::poolbench
