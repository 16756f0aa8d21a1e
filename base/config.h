// Loads a TOML file into a protobuf message of proto/config.proto, with the rules its fields carry.
#ifndef CISTERN_BASE_CONFIG_H_
#define CISTERN_BASE_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/secret_file.h"  // IWYU pragma: export
#include "google/protobuf/message.h"

namespace cistern {

// "64GiB", "4KiB", "1.5MiB", "4096", "1GB" (powers of 1000). InvalidArgument says what is allowed.
absl::StatusOr<uint64_t> ParseSize(std::string_view text);
// "30s", "2ms", "500us", "1m30s", "10m", "1h": milliseconds, rounded up.
absl::StatusOr<uint64_t> ParseMillis(std::string_view text);
std::string FormatSize(uint64_t bytes);  // "64GiB" when exact, else "1.4GiB"

// Where the value in force of one key came from.
struct ConfigValue {
  std::string key;     // "lease", "log.level", "segment[0].size"
  std::string value;   // as one would write it
  std::string source;  // "default", "/etc/cistern/master.toml:12", "flag"
};

struct LoadedConfig {
  std::vector<ConfigValue> values;  // every scalar key, in schema order
  std::string ToString() const;     // an aligned print-out for the start-up log
};

// Fills `message` from: defaults, then the TOML text, then `overrides` ("lease" -> "5s",
// "log.level" -> "debug"). InvalidArgument: "FILE:LINE: ..." for an unknown key (with the nearest
// known one), a wrong type or unit, a value out of range, a missing required key. `file_name` "":
// there is no file, and what is missing is said to be given with --config or --set.
absl::StatusOr<LoadedConfig> LoadConfig(
    std::string_view toml_text, std::string_view file_name,
    const std::vector<std::pair<std::string, std::string>>& overrides,
    google::protobuf::Message* message);
// The same from a file; NotFound or PermissionDenied with the path.
absl::StatusOr<LoadedConfig> LoadConfigFile(
    const std::string& path, const std::vector<std::pair<std::string, std::string>>& overrides,
    google::protobuf::Message* message);
// One line per key with type, default, range and help: for --help.
std::string DescribeConfig(const google::protobuf::Descriptor* descriptor);

}  // namespace cistern

#endif  // CISTERN_BASE_CONFIG_H_
