#include "client/client_core.h"

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/key_hash.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "base/version.h"
#include "transport/tcp/tcp.h"

namespace cistern {
namespace {

constexpr size_t kMinTokenBytes = 32;

uint64_t RandomNumber() {
  uint64_t number = 0;
  RandomBytes(&number, sizeof(number));
  return number;
}

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.deadline <= absl::ZeroDuration() || options.deadline > absl::Hours(24)) {
    return absl::InvalidArgumentError("deadline: more than 0, at most 24 hours");
  }
  if (options.connections_per_store < 1 || options.connections_per_store > 64) {
    return absl::InvalidArgumentError("connections_per_store: 1 to 64");
  }
  if (options.max_inflight_bytes == 0) {
    return absl::InvalidArgumentError("max_inflight_bytes: more than 0");
  }
  if (options.wire == Wire::kRdma) {
    return absl::UnimplementedError("this build has the tcp and shm wires only");
  }
  return absl::OkStatus();
}

}  // namespace

ClientCore::ClientCore(const ClientOptions& options, transport::LocalIdentity identity,
                       Clock* clock)
    : options(options),
      clock(*clock),
      identity(std::move(identity)),
      placements({.seed = RandomNumber(), .clock = clock}),
      budget(options.max_inflight_bytes),
      sample(RandomNumber()),
      bad_reports(clock) {}

ClientCore::~ClientCore() {
  // A core that was never handed out (Create failed half-way) has nothing under way.
  master.reset();
  stores.reset();
  io_.reset();
}

absl::StatusOr<std::shared_ptr<ClientCore>> ClientCore::Create(const ClientOptions& options) {
  CISTERN_RETURN_IF_ERROR(CheckOptions(options));
  CISTERN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.master_address));
  transport::LocalIdentity identity;
  identity.kind = wire::PEER_CLIENT;
  if (!options.pool_token_file.empty()) {
    CISTERN_ASSIGN_OR_RETURN(identity.token,
                             ReadSecretFile(options.pool_token_file, kMinTokenBytes));
  }
  identity.incarnation = RandomNumber();
  identity.boot_id = transport::ReadBootId();
  identity.software_version = std::string(SoftwareVersion());

  Clock* const clock = &Clock::Real();
  std::shared_ptr<ClientCore> core(new ClientCore(options, std::move(identity), clock));
  CISTERN_ASSIGN_OR_RETURN(core->io_, transport::IoContext::Create({.clock = clock}));
  transport::IoContext* const io = core->io_.get();
  core->env = {io, clock, &core->budget, &core->operations};

  core->channels = std::make_unique<StoreChannels>(io, options.wire, options.connections_per_store,
                                                   core->identity, core->lent, clock);
  core->stores = std::make_unique<StoreTable>(
      [channels = core->channels.get()](const StoreTable::Endpoint& endpoint) {
        return channels->Make(endpoint);
      });
  transport::TcpChannelOptions channel;
  channel.identity = core->identity;
  channel.clock = clock;
  channel.host = address.host;
  channel.port = address.port;
  channel.connections = 1;
  core->master = std::make_unique<MasterLink>(
      options.master_address, transport::MakeTcpChannel(io, channel), core->stores.get());
  return core;
}

absl::StatusOr<CallGuard> ClientCore::Enter() {
  CISTERN_RETURN_IF_ERROR(fork_guard.Check());
  if (!operations.Enter()) return absl::FailedPreconditionError("the client was closed");
  return CallGuard(&operations);
}

OperationOptions ClientCore::CallStart(const CallOptions& call, bool async) const {
  const absl::Duration deadline =
      call.deadline > absl::ZeroDuration() ? call.deadline : options.deadline;
  return {.deadline = clock.Mono() + std::min(deadline, absl::Hours(24)),
          .priority = call.priority,
          .async = async};
}

void ClientCore::Shutdown() {
  if (closed_.exchange(true)) return;
  if (fork_guard.Forked()) {
    // There is no I/O thread here to join, and locks may be held by threads that are not here: let
    // go of the sockets, and never free the rest.
    (void)new std::shared_ptr<ClientCore>(shared_from_this());
    if (master != nullptr) master->channel().AbandonAfterFork();
    if (stores != nullptr) stores->AbandonAfterFork();
    if (io_ != nullptr) io_->AbandonAfterFork();
    return;
  }
  operations.CancelAll();
  if (io_ != nullptr) bad_reports.CancelAll(io_.get());
  master.reset();
  stores.reset();
  io_.reset();
}

}  // namespace cistern
