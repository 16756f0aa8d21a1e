// poolbench's results, as a table and as JSON. Pure.
#ifndef CISTERN_TOOLS_POOLBENCH_REPORT_H_
#define CISTERN_TOOLS_POOLBENCH_REPORT_H_

#include <string>
#include <vector>

#include "tools/poolbench/measurement.h"
#include "tools/poolbench/options.h"

namespace cistern::poolbench {

// One thing measured several times.
struct Series {
  std::string name;
  std::vector<double> rates = {};   // of each round: bytes or keys a second
  std::vector<double> p50_us = {};  // of each round's calls; empty where calls mean nothing
  std::vector<double> p99_us = {};

  void Add(const Round& round);
};
// The middle one, or the mean of the two in the middle; 0 of nothing.
double Median(std::vector<double> values);

// A number that is no rate beside a limit.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit = {};  // "us", "bytes", "share", ...: what JSON says; people see FigureText
};
std::string FigureText(const Figure& figure);

struct CaseResult {
  Case what;
  Series ours = {};
  std::vector<Series> limits = {};
  std::vector<Figure> figures = {};  // a scenario's, or what else a rate's rounds told
};

// Of the master's CPU time and leases over a case's rounds.
std::vector<Figure> FiguresOf(const Case& what, const std::vector<Round>& rounds);

struct Report {
  std::string machine;
  std::string kernel;
  std::string build_mode;
  std::string commit;
  double load_before = 0;  // the machine's, over the last minute
  double load_after = 0;
  std::string wire;
  std::string memory;
  uint64_t threads = 1;
  uint64_t stores = 1;
  uint64_t working_set_bytes = 0;
  double seconds = 0;
  std::vector<CaseResult> cases;
};

std::string ReportTable(const Report& report);
std::string ReportJson(const Report& report);

}  // namespace cistern::poolbench

#endif  // CISTERN_TOOLS_POOLBENCH_REPORT_H_
