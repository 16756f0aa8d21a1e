#include "tools/ctl/connection.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/status.h"
#include "proto/config.pb.h"

namespace cistern::ctl {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxEndpointsBytes = 64 << 10;

std::string Field(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

absl::Status CheckAddress(const std::string& flag, const std::string& address) {
  if (address.empty()) return absl::OkStatus();
  const absl::StatusOr<HostPort> parts = SplitHostPort(address);
  return parts.ok() ? absl::OkStatus() : Annotate(parts.status(), flag);
}

// `port` on the host of `address`.
std::string SameHost(const std::string& address, const std::string& port) {
  const absl::StatusOr<HostPort> parts = SplitHostPort(address);
  return JoinHostPort(parts.ok() ? parts->host : "127.0.0.1", port);
}

void FillEmpty(std::string& to, const std::string& from) {
  if (to.empty()) to = from;
}

// A file that the caller named: whatever is wrong with it, the argument is.
absl::Status Unreadable(const std::string& path) {
  return absl::InvalidArgumentError(
      ErrnoStatus(errno, absl::StrCat("cannot read ", path)).message());
}

RdmaOptions RdmaOptionsOf(const config::RdmaConfig& config) {
  RdmaOptions options;
  options.enabled = config.enabled();
  options.devices = config.devices();
  options.gid_index = config.gid_index();
  options.traffic_class = config.traffic_class();
  options.service_level = config.service_level();
  // "auto" is no number, and leaves 0.
  if (!absl::SimpleAtoi(config.mtu(), &options.mtu_bytes)) options.mtu_bytes = 0;
  options.queue_depth = config.queue_depth();
  options.max_inline_bytes = static_cast<uint32_t>(config.max_inline_bytes());
  options.retry_count = config.retry_count();
  options.timeout = absl::Milliseconds(static_cast<int64_t>(config.timeout_ms()));
  return options;
}

}  // namespace

absl::StatusOr<HostPort> SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort out;
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
  }
  out.host = address.substr(0, colon);
  out.port = address.substr(colon + 1);
  if (out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not HOST:PORT; write IPv6 as [ADDRESS]:PORT"));
  }
  return out;
}

std::string JoinHostPort(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

absl::StatusOr<Endpoints> ParseEndpoints(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  Endpoints out;
  out.kind = Field(object, "kind");
  out.id = Field(object, "id");
  out.pool_id = Field(object, "pool_id");
  out.data = Field(object, "data");
  out.grpc = Field(object, "grpc");
  out.http = Field(object, "http");
  const auto pid = object.find("pid");
  if (pid != object.end() && pid->is_number_integer()) out.pid = pid->get<int64_t>();
  if (out.kind != "master" && out.kind != "store") {
    return absl::InvalidArgumentError("\"kind\" is neither \"master\" nor \"store\"");
  }
  CISTERN_RETURN_IF_ERROR(CheckAddress("\"data\"", out.data));
  CISTERN_RETURN_IF_ERROR(CheckAddress("\"grpc\"", out.grpc));
  CISTERN_RETURN_IF_ERROR(CheckAddress("\"http\"", out.http));
  if (out.data.empty()) return absl::InvalidArgumentError("\"data\" is missing");
  return out;
}

absl::StatusOr<Endpoints> ReadEndpointsFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  if (!in) return ErrnoStatus(errno, std::string(absl::StrCat("cannot read ", path)));
  std::string text(kMaxEndpointsBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  absl::StatusOr<Endpoints> endpoints = ParseEndpoints(text);
  return endpoints.ok() ? endpoints : Annotate(endpoints.status(), path);
}

absl::StatusOr<Connection> ResolveConnection(const ConnectionFlags& flags) {
  CISTERN_RETURN_IF_ERROR(CheckAddress("--master", flags.master));
  CISTERN_RETURN_IF_ERROR(CheckAddress("--data", flags.data));
  Connection out;
  out.master = flags.master;
  out.data = flags.data;
  out.token_file = flags.token_file;
  if (!flags.endpoints.empty()) {
    if (access(flags.endpoints.c_str(), R_OK) != 0) return Unreadable(flags.endpoints);
    CISTERN_ASSIGN_OR_RETURN(const Endpoints endpoints, ReadEndpointsFile(flags.endpoints));
    if (endpoints.kind != "master") {
      return absl::InvalidArgumentError(
          absl::StrCat("--endpoints: ", flags.endpoints, " is a store's; name the master's"));
    }
    FillEmpty(out.master, endpoints.grpc);
    FillEmpty(out.data, endpoints.data);
    const absl::StatusOr<PoolId> pool = PoolId::ParseHex(endpoints.pool_id);
    if (pool.ok()) out.pool_id = std::string(pool->view());
  }
  if (!flags.config.empty()) {
    config::ClientConfig config;
    const absl::StatusOr<LoadedConfig> loaded = LoadConfigFile(flags.config, {}, &config);
    if (!loaded.ok()) return loaded.status();
    FillEmpty(out.data, config.master_address());
    FillEmpty(out.token_file, config.pool_token_file());
    out.wire = config.wire();
    out.connections_per_store = config.connections_per_store();
    out.deadline_ms = config.deadline_ms();
    out.rdma = RdmaOptionsOf(config.rdma());
  }
  if (!out.token_file.empty() && access(out.token_file.c_str(), R_OK) != 0) {
    return Unreadable(out.token_file);
  }
  if (out.master.empty() && out.data.empty())
    out.master = JoinHostPort("127.0.0.1", kDefaultGrpcPort);
  if (out.master.empty()) out.master = SameHost(out.data, kDefaultGrpcPort);
  if (out.data.empty()) out.data = SameHost(out.master, kDefaultDataPort);
  return out;
}

}  // namespace cistern::ctl
