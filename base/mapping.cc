#include "base/mapping.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace cistern {
namespace {

// "Rss:               16384 kB" -> bytes, when the line starts with `key` and a colon.
bool KilobytesOf(const std::string& line, const char* key, uint64_t* bytes) {
  const std::string prefix = std::string(key) + ":";
  if (line.compare(0, prefix.size(), prefix) != 0) return false;
  uint64_t kilobytes = 0;
  if (std::sscanf(line.c_str() + prefix.size(), "%" SCNu64, &kilobytes) != 1) return false;
  *bytes = kilobytes << 10;
  return true;
}

void ReadLine(const std::string& line, MappingInfo* info) {
  uint64_t bytes = 0;
  if (KilobytesOf(line, "Rss", &bytes)) info->resident_bytes += bytes;
  for (const char* hugetlb : {"Shared_Hugetlb", "Private_Hugetlb"}) {
    if (!KilobytesOf(line, hugetlb, &bytes)) continue;
    info->resident_bytes += bytes;  // Rss does not count these
    info->huge_bytes += bytes;
  }
  for (const char* transparent : {"AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"}) {
    if (KilobytesOf(line, transparent, &bytes)) info->huge_bytes += bytes;
  }
  constexpr char kFlags[] = "VmFlags:";
  if (line.compare(0, sizeof(kFlags) - 1, kFlags) == 0) {
    std::istringstream words(line.substr(sizeof(kFlags) - 1));
    for (std::string word; words >> word;) info->flags.push_back(word);
  }
}

}  // namespace

bool MappingInfo::HasFlag(const std::string& flag) const {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

absl::StatusOr<MappingInfo> ReadMapping(const void* address) {
  const auto at = reinterpret_cast<uint64_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) return absl::UnavailableError("cannot read /proc/self/smaps");
  MappingInfo info;
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    // A mapping's first line has its range; the others begin with a word and a colon.
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      if (found) break;
      found = begin <= at && at < end;
      info.begin = begin;
      info.end = end;
    } else if (found) {
      ReadLine(line, &info);
    }
  }
  if (!found) return absl::NotFoundError(absl::StrCat("nothing is mapped at ", absl::Hex(at)));
  return info;
}

uint64_t AvailableMemoryBytes() {
  std::ifstream meminfo("/proc/meminfo");
  uint64_t bytes = 0;
  for (std::string line; std::getline(meminfo, line);) {
    if (KilobytesOf(line, "MemAvailable", &bytes)) return bytes;
  }
  return 0;
}

}  // namespace cistern
