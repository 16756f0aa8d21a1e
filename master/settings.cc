#include "master/settings.h"

#include "absl/strings/str_cat.h"
#include "base/daemon.h"

namespace cistern::master {
namespace {

absl::Duration Ms(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

absl::Status Below(std::string_view low_key, double low, std::string_view high_key, double high) {
  if (low < high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(low_key), " (", low, ") must be below ", std::string(high_key), " (", high, ")"));
}

absl::Status Ordered(std::string_view low_key, uint64_t low, std::string_view high_key,
                     uint64_t high) {
  if (low <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(low_key), " (", low,
                                                 " ms) must not be longer than ",
                                                 std::string(high_key), " (", high, " ms)"));
}

}  // namespace

absl::Status CheckSettings(const config::MasterConfig& config) {
  absl::Status checks[] = {
      Below("low_watermark", config.low_watermark(), "high_watermark", config.high_watermark()),
      Ordered("lease", config.lease_ms(), "max_lease", config.max_lease_ms()),
      Ordered("heartbeat", config.heartbeat_ms(), "suspect_after", config.suspect_after_ms()),
      Ordered("suspect_after", config.suspect_after_ms(), "dead_after", config.dead_after_ms()),
      Ordered("dead_after", config.dead_after_ms(), "forget_after", config.forget_after_ms()),
  };
  for (absl::Status& check : checks) {
    if (!check.ok()) return std::move(check);
  }
  if (config.suspect_after_ms() == config.dead_after_ms()) {
    return absl::InvalidArgumentError("suspect_after must be shorter than dead_after");
  }
  if (config.pool_token_file().empty() && !IsLoopbackAddress(config.listen_address())) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_address '", config.listen_address(),
                     "' can be reached from other hosts: set pool_token_file and run the same "
                     "command with --init, "
                     "once, which makes the token; or listen on 127.0.0.1"));
  }
  if (config.data_port() != 0 && config.data_port() == config.grpc_port()) {
    return absl::InvalidArgumentError("data_port and grpc_port must differ");
  }
  if (config.http_enabled() && config.http_port() != 0 &&
      (config.http_port() == config.data_port() || config.http_port() == config.grpc_port())) {
    return absl::InvalidArgumentError("http_port must differ from data_port and grpc_port");
  }
  if (config.http_enabled() && config.pool_token_file().empty() &&
      !IsLoopbackAddress(config.http_address())) {
    return absl::InvalidArgumentError(
        absl::StrCat("http_address '", config.http_address(),
                     "' can be reached from other hosts: a pool without pool_token_file keeps to "
                     "this one"));
  }
  return absl::OkStatus();
}

MasterOptions CoreOptions(const config::MasterConfig& config) {
  MasterOptions options;
  options.high_watermark = config.high_watermark();
  options.low_watermark = config.low_watermark();
  options.lease = Ms(config.lease_ms());
  options.max_lease = Ms(config.max_lease_ms());
  options.lease_share = config.lease_share();
  options.in_progress = Ms(config.in_progress_ms());
  options.delta_flush = Ms(config.delta_flush_ms());
  options.heartbeat = Ms(config.heartbeat_ms());
  options.suspect_after = Ms(config.suspect_after_ms());
  options.dead_after = Ms(config.dead_after_ms());
  options.forget_after = Ms(config.forget_after_ms());
  options.max_chunks = config.max_chunks();
  options.max_in_progress = config.max_in_progress();
  options.max_leases = config.max_leases();
  return options;
}

std::string RunDir(const config::MasterConfig& config) {
  return config.run_dir().empty() ? config.data_dir() : config.run_dir();
}

}  // namespace cistern::master
