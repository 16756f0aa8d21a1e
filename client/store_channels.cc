#include "client/store_channels.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/fallback_channel.h"
#include "transport/rdma/rdma.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace cistern {
namespace {

// A socket on this host answers at once or not at all.
constexpr absl::Duration kShmConnectTimeout = absl::Milliseconds(500);
// Where the way has to be found first, and a neighbour does not answer at once, the connection
// manager takes its time. Nobody waits for it but those who have no other wire.
constexpr absl::Duration kRdmaConnectTimeout = absl::Seconds(3);
constexpr absl::Duration kRdmaPatience = absl::Seconds(5);

std::string Address(const StoreTable::Endpoint& endpoint) {
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

}  // namespace

absl::Status StoreChannels::ShmPossible(const StoreTable::Endpoint& endpoint) const {
  if (endpoint.boot_id.IsZero() || endpoint.boot_id != options_.identity.boot_id) {
    return absl::UnavailableError("the store is on another host");
  }
  if (endpoint.socket_path.empty()) {
    return absl::UnavailableError("the store offers no shared memory (shm.enabled)");
  }
  return absl::OkStatus();
}

absl::Status StoreChannels::RdmaPossible(const StoreTable::Endpoint& endpoint) const {
  if (options_.rdma == nullptr) return absl::UnavailableError(options_.why_no_rdma);
  if (endpoint.rdma_port == 0) {
    return absl::UnavailableError(absl::StrCat(
        "the store offers no RDMA", endpoint.no_rdma.empty() ? "" : ": ", endpoint.no_rdma));
  }
  return absl::OkStatus();
}

absl::Status StoreChannels::CheckForced(const StoreTable::Endpoint& endpoint) const {
  if (options_.wire != Wire::kShm && options_.wire != Wire::kRdma) return absl::OkStatus();
  const bool shm = options_.wire == Wire::kShm;
  const absl::Status possible = shm ? ShmPossible(endpoint) : RdmaPossible(endpoint);
  if (possible.ok()) return possible;
  return Annotate(possible,
                  absl::StrCat(shm ? "shared memory" : "RDMA", " is asked for, but store ",
                               Address(endpoint), " cannot be reached by it"));
}

absl::StatusOr<std::unique_ptr<transport::Channel>> StoreChannels::Make(
    const StoreTable::Endpoint& endpoint) {
  CISTERN_RETURN_IF_ERROR(CheckForced(endpoint));
  switch (options_.wire) {
    case Wire::kTcp:
      Note(endpoint, "tcp", "as asked for");
      return MakeTcp(endpoint);
    case Wire::kShm:
      Note(endpoint, "shm", "as asked for");
      return MakeShm(endpoint, absl::Seconds(2));
    case Wire::kRdma:
      Note(endpoint, "rdma", "as asked for");
      return MakeRdma(endpoint);
    case Wire::kAuto:
      break;
  }
  if (absl::Status possible = ShmPossible(endpoint); !possible.ok()) {
    const std::string no_shm(possible.message());
    NoteRemote(endpoint, no_shm);
    return MakeRemote(endpoint, no_shm);
  }
  transport::FallbackOptions fallback;
  fallback.clock = options_.clock;
  fallback.on_choice = [this, endpoint](const absl::Status& why) {
    if (why.ok()) return Note(endpoint, "shm", "the store is on this host");
    CISTERN_LOG(Warning, "store ", Address(endpoint),
                " is on this host but is not reached by shared memory: ", why.message());
    NoteRemote(endpoint, std::string(why.message()));
  };
  return transport::MakeFallbackChannel(
      MakeShm(endpoint, kShmConnectTimeout),
      MakeRemote(endpoint, "shared memory does not let us in (see the log)"), fallback);
}

std::unique_ptr<transport::Channel> StoreChannels::MakeRemote(const StoreTable::Endpoint& endpoint,
                                                              const std::string& no_shm) {
  if (!RdmaPossible(endpoint).ok()) return MakeTcp(endpoint);
  transport::FallbackOptions fallback;
  fallback.clock = options_.clock;
  fallback.in_background = true;
  fallback.patience = kRdmaPatience;
  fallback.on_choice = [this, endpoint, no_shm](const absl::Status& why) {
    if (why.ok()) return Note(endpoint, "rdma", no_shm);
    CISTERN_LOG(Warning, "store ", Address(endpoint),
                " has RDMA but is reached by tcp: ", why.message());
    Note(endpoint, "tcp", absl::StrCat(no_shm, "; RDMA: ", why.message()));
  };
  return transport::MakeFallbackChannel(MakeRdma(endpoint), MakeTcp(endpoint), fallback);
}

// Before RDMA has been tried.
void StoreChannels::NoteRemote(const StoreTable::Endpoint& endpoint, const std::string& no_shm) {
  const absl::Status possible = RdmaPossible(endpoint);
  Note(endpoint, "tcp",
       absl::StrCat(no_shm, "; RDMA: ",
                    possible.ok() ? "no connection has been made yet" : possible.message()));
}

std::unique_ptr<transport::Channel> StoreChannels::MakeTcp(const StoreTable::Endpoint& endpoint) {
  transport::TcpChannelOptions options;
  options.host = endpoint.host;
  options.port = endpoint.port;
  options.identity = options_.identity;
  options.expected_peer_id = std::string(endpoint.id.view());
  options.connections = options_.connections;
  options.clock = options_.clock;
  return transport::MakeTcpChannel(&io_, options);
}

std::unique_ptr<transport::Channel> StoreChannels::MakeRdma(const StoreTable::Endpoint& endpoint) {
  transport::RdmaChannelOptions options;
  options.host = options_.rdma;
  options.addresses = endpoint.rdma_addresses;
  options.port = endpoint.rdma_port;
  options.identity = options_.identity;
  options.expected_peer_id = std::string(endpoint.id.view());
  options.connections = options_.connections;
  options.connect_timeout = kRdmaConnectTimeout;
  options.clock = options_.clock;
  return transport::MakeRdmaChannel(&io_, options);
}

std::unique_ptr<transport::Channel> StoreChannels::MakeShm(const StoreTable::Endpoint& endpoint,
                                                           absl::Duration connect_timeout) {
  transport::ShmChannelOptions options;
  options.socket_path = endpoint.socket_path;
  options.identity = options_.identity;
  options.expected_peer_id = std::string(endpoint.id.view());
  options.connections = options_.connections;
  options.connect_timeout = connect_timeout;
  options.lent = options_.lent;
  options.clock = options_.clock;
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
