// "host:port" as people write it.
#ifndef CISTERN_BASE_HOST_PORT_H_
#define CISTERN_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cistern {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "10.0.0.1:7600", "master.local:7600", "[::1]:7600". InvalidArgument shows what was given.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

}  // namespace cistern

#endif  // CISTERN_BASE_HOST_PORT_H_
