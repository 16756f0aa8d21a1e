#include "store/shm_listener.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace cistern::store {
namespace {

constexpr uint64_t kRingStepBytes = 4096;

// "1000, 1001".
absl::StatusOr<std::vector<uint32_t>> ParseIds(const std::string& text, const char* key) {
  std::vector<uint32_t> ids;
  if (absl::StripAsciiWhitespace(text).empty()) return ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(part), &id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, " = \"", text, "\": numbers with commas between them, like \"1000, 1001\""));
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

absl::Status CheckShmConfig(const config::ShmConfig& config) {
  CISTERN_RETURN_IF_ERROR(ParseIds(config.allowed_uids(), "shm.allowed_uids").status());
  CISTERN_RETURN_IF_ERROR(ParseIds(config.allowed_gids(), "shm.allowed_gids").status());
  if (config.ring_bytes() % kRingStepBytes != 0) {
    return absl::InvalidArgumentError("shm.ring must be a multiple of 4KiB");
  }
  return absl::OkStatus();
}

absl::StatusOr<transport::ShmServerOptions> ShmOptions(const config::ShmConfig& config,
                                                       const std::string& run_dir) {
  transport::ShmServerOptions options;
  CISTERN_ASSIGN_OR_RETURN(const auto uids, ParseIds(config.allowed_uids(), "shm.allowed_uids"));
  CISTERN_ASSIGN_OR_RETURN(const auto gids, ParseIds(config.allowed_gids(), "shm.allowed_gids"));
  options.allowed_uids.assign(uids.begin(), uids.end());
  options.allowed_gids.assign(gids.begin(), gids.end());
  options.ring_bytes = config.ring_bytes();
  options.max_mapped_bytes = config.max_mapped_bytes();
  char real[PATH_MAX];
  if (realpath(run_dir.c_str(), real) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("run_dir ", run_dir));
  }
  options.socket_path = absl::StrCat(real, "/store.sock");
  return options;
}

}  // namespace cistern::store
