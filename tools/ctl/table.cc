#include "tools/ctl/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace cistern::ctl {
namespace {

std::string Pad(const std::string& text, size_t width, Table::Align align) {
  const std::string blanks(width - std::min(width, DisplayWidth(text)), ' ');
  return align == Table::Align::kRight ? blanks + text : text + blanks;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  CISTERN_CHECK(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(const std::string& indent) const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  bool titled = false;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(DisplayWidth(column.title));
    titled = titled || !column.title.empty();
  }
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = indent;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += "  ";
      text += Pad(cells[i], widths[i], columns_[i].align);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  if (titled) line(titles);
  for (const auto& row : rows_) line(row);
  return out;
}

size_t DisplayWidth(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string Count(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string Bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would be shown as 1024.0 of the smaller unit.
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

std::string Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-" : Percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string Elapsed(absl::Duration d) {
  const int64_t ms = absl::ToInt64Milliseconds(d);
  const int64_t s = ms / 1000;
  if (ms < 1000) return absl::StrCat(ms, " ms");
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min ", s % 60, " s");
  if (s < 86400) return absl::StrCat(s / 3600, " h ", s / 60 % 60, " min");
  return absl::StrCat(s / 86400, " d ", s / 3600 % 24, " h");
}

std::string Latency(absl::Duration d) {
  const double us = absl::ToDoubleMicroseconds(d);
  if (us < 9.95) return absl::StrFormat("%.1f us", us);
  if (us < 999.5) return absl::StrFormat("%.0f us", us);
  if (us < 999'995) return absl::StrFormat("%.2f ms", us / 1e3);
  return absl::StrFormat("%.2f s", us / 1e6);
}

std::string Plural(uint64_t n, const std::string& noun) {
  return absl::StrCat(Count(n), " ", noun, n == 1 ? "" : "s");
}

std::string Printable(const std::string& text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += absl::StrFormat("\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace cistern::ctl
