// Plain-text tables and quantities for people. Pure: strings in, strings out.
#ifndef CISTERN_TOOLS_CTL_TABLE_H_
#define CISTERN_TOOLS_CTL_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cistern::ctl {

// Columns as wide as their widest cell, two blanks apart. A value; not thread-safe.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns);

  // Missing cells are empty; more cells than columns are a mistake of ours.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // A title line (none if all titles are empty), then the rows, each line after `indent`.
  std::string ToString(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The width on a terminal: UTF-8 code points.
size_t DisplayWidth(const std::string& text);

std::string Count(uint64_t n);                     // 1,234,567
std::string Bytes(uint64_t bytes);                 // 771.6 MiB; exact below 1 KiB
std::string Percent(double share);                 // 0.934 -> 93.4 %
std::string Ratio(uint64_t part, uint64_t whole);  // Percent, "-" when whole is 0
std::string Elapsed(absl::Duration d);             // 2 min 10 s; 3 h 5 min; 450 ms
std::string Latency(absl::Duration d);             // 91 us; 1.24 ms; 2.10 s
// "1 chunk", "2 chunks"
std::string Plural(uint64_t n, const std::string& noun);
// Bytes that a terminal might take for commands, and lines' ends, as \xNN.
std::string Printable(const std::string& text);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_TABLE_H_
