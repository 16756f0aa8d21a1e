// poolbench's results, as a table and as JSON. Pure.
#ifndef CISTERN_TOOLS_POOLBENCH_REPORT_H_
#define CISTERN_TOOLS_POOLBENCH_REPORT_H_

#include <string>
#include <vector>

#include "tools/poolbench/options.h"

namespace cistern::poolbench {

// One thing measured several times.
struct Series {
  std::string name;
  std::vector<double> rounds;  // bytes or keys a second
};
// The middle one, or the mean of the two in the middle; 0 of nothing.
double Median(std::vector<double> values);

struct CaseResult {
  Case what;
  Series ours;
  std::vector<Series> limits;
};

struct Report {
  std::string machine;
  std::string build_mode;
  std::string commit;
  std::string wire;
  uint64_t threads = 1;
  uint64_t stores = 1;
  uint64_t working_set_bytes = 0;
  double seconds = 0;
  std::vector<CaseResult> cases;
};

std::string ReportTable(const Report& report);
std::string ReportJson(const Report& report);

// "Intel ..., 2 cores, 23.5 GiB", from the texts of /proc/cpuinfo and /proc/meminfo.
std::string DescribeMachine(const std::string& cpuinfo, const std::string& meminfo, int cores);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_REPORT_H_
