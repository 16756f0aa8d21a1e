#include "client/store_channels.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/fallback_channel.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace cistern {
namespace {

// A socket on this host answers at once or not at all.
constexpr absl::Duration kShmConnectTimeout = absl::Milliseconds(500);

std::string Address(const StoreTable::Endpoint& endpoint) {
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

}  // namespace

absl::Status StoreChannels::ShmPossible(const StoreTable::Endpoint& endpoint) const {
  if (endpoint.boot_id.IsZero() || endpoint.boot_id != identity_.boot_id) {
    return absl::UnavailableError("the store is on another host");
  }
  if (endpoint.socket_path.empty()) {
    return absl::UnavailableError("the store offers no shared memory (shm.enabled)");
  }
  return absl::OkStatus();
}

absl::Status StoreChannels::CheckForced(const StoreTable::Endpoint& endpoint) const {
  if (wire_ != Wire::kShm) return absl::OkStatus();
  const absl::Status possible = ShmPossible(endpoint);
  if (possible.ok()) return possible;
  return Annotate(possible, absl::StrCat("shared memory is asked for, but store ",
                                         Address(endpoint), " cannot be reached by it"));
}

absl::StatusOr<std::unique_ptr<transport::Channel>> StoreChannels::Make(
    const StoreTable::Endpoint& endpoint) {
  CISTERN_RETURN_IF_ERROR(CheckForced(endpoint));
  if (wire_ == Wire::kTcp) {
    Note(endpoint, "tcp", "as asked for");
    return MakeTcp(endpoint);
  }
  if (wire_ == Wire::kShm) {
    Note(endpoint, "shm", "as asked for");
    return MakeShm(endpoint, absl::Seconds(2));
  }
  if (absl::Status possible = ShmPossible(endpoint); !possible.ok()) {
    Note(endpoint, "tcp", std::string(possible.message()));
    return MakeTcp(endpoint);
  }
  transport::FallbackOptions fallback;
  fallback.clock = &clock_;
  fallback.on_choice = [this, endpoint](const absl::Status& why) {
    if (why.ok()) return Note(endpoint, "shm", "the store is on this host");
    CISTERN_LOG(Warning, "store ", Address(endpoint),
                " is on this host but is reached by tcp: ", why.message());
    Note(endpoint, "tcp", std::string(why.message()));
  };
  return transport::MakeFallbackChannel(MakeShm(endpoint, kShmConnectTimeout), MakeTcp(endpoint),
                                        fallback);
}

std::unique_ptr<transport::Channel> StoreChannels::MakeTcp(const StoreTable::Endpoint& endpoint) {
  transport::TcpChannelOptions options;
  options.host = endpoint.host;
  options.port = endpoint.port;
  options.identity = identity_;
  options.expected_peer_id = std::string(endpoint.id.view());
  options.connections = connections_;
  options.clock = &clock_;
  return transport::MakeTcpChannel(&io_, options);
}

std::unique_ptr<transport::Channel> StoreChannels::MakeShm(const StoreTable::Endpoint& endpoint,
                                                           absl::Duration connect_timeout) {
  transport::ShmChannelOptions options;
  options.socket_path = endpoint.socket_path;
  options.identity = identity_;
  options.expected_peer_id = std::string(endpoint.id.view());
  options.connections = connections_;
  options.connect_timeout = connect_timeout;
  options.lent = lent_;
  options.clock = &clock_;
  return transport::MakeShmChannel(&io_, options);
}

void StoreChannels::Note(const StoreTable::Endpoint& endpoint, std::string wire, std::string why) {
  MutexLock lock(mutex_);
  wires_[endpoint.id] = {endpoint.id, Address(endpoint), std::move(wire), std::move(why)};
}

std::vector<StoreWire> StoreChannels::Wires() const {
  std::vector<StoreWire> wires;
  MutexLock lock(mutex_);
  for (const auto& [id, wire] : wires_) wires.push_back(wire);
  return wires;
}

}  // namespace cistern
