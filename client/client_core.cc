#include "client/client_core.h"

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/key_hash.h"
#include "base/log.h"
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
  const RdmaOptions& rdma = options.rdma;
  if (rdma.queue_depth < 16 || rdma.queue_depth > 8192) {
    return absl::InvalidArgumentError("rdma.queue_depth: 16 to 8,192");
  }
  if (rdma.traffic_class > 255 || rdma.service_level > 15 || rdma.retry_count > 7 ||
      rdma.max_inline_bytes > 1024) {
    return absl::InvalidArgumentError(
        "rdma: traffic_class to 255, service_level to 15, retry_count to 7, max_inline_bytes to "
        "1,024");
  }
  return absl::OkStatus();
}

transport::rdma::HostOptions HostOptionsOf(const RdmaOptions& rdma) {
  transport::rdma::HostOptions options;
  options.devices = rdma.devices;
  options.gid_index = rdma.gid_index;
  options.mtu_bytes = rdma.mtu_bytes;
  options.traffic_class = rdma.traffic_class;
  options.service_level = rdma.service_level;
  options.queue_depth = rdma.queue_depth;
  options.max_inline_bytes = rdma.max_inline_bytes;
  options.retry_count = rdma.retry_count;
  options.timeout_exponent = transport::rdma::TimeoutExponent(rdma.timeout);
  return options;
}

// Where RDMA may be used: the devices. Null, with *why: there are none, or they are not asked for.
absl::StatusOr<std::shared_ptr<transport::rdma::Host>> OpenRdma(const ClientOptions& options,
                                                                std::string* why) {
  const bool forced = options.wire == Wire::kRdma;
  if (options.wire != Wire::kAuto && !forced) return nullptr;
  absl::StatusOr<std::shared_ptr<transport::rdma::Host>> host =
      absl::UnavailableError("rdma.enabled is false");
  if (options.rdma.enabled) host = transport::rdma::Host::Open(HostOptionsOf(options.rdma));
  if (host.ok() || host.status().code() == absl::StatusCode::kInvalidArgument) return host;
  if (forced) {
    return absl::FailedPreconditionError(absl::StrCat(
        "RDMA is asked for, but this host does not have it: ", host.status().message()));
  }
  *why = std::string(host.status().message());
  CISTERN_LOG(Info, "stores on other hosts are reached by tcp: ", *why);
  return nullptr;
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

  StoreChannels::Options channels;
  channels.wire = options.wire;
  channels.connections = options.connections_per_store;
  channels.identity = core->identity;
  channels.lent = core->lent;
  channels.clock = clock;
  CISTERN_ASSIGN_OR_RETURN(core->rdma, OpenRdma(options, &channels.why_no_rdma));
  channels.rdma = core->rdma;
  core->channels = std::make_unique<StoreChannels>(io, std::move(channels));
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

absl::StatusOr<bool> ClientCore::AddToDevices(const BufferDesc& desc) {
  if (rdma == nullptr) return false;
  using transport::rdma::MemoryRights;
  const MemoryRights rights = !desc.remote_write  ? MemoryRights::kRemoteRead
                              : !desc.remote_read ? MemoryRights::kRemoteWrite
                                                  : MemoryRights::kRemote;
  const absl::Status added = rdma->AddMemory(desc.data, desc.bytes, rights);
  if (added.ok() || options.wire == Wire::kRdma) {
    return added.ok() ? absl::StatusOr<bool>(true) : added;
  }
  CISTERN_LOG_EVERY(Warning, absl::Seconds(10),
                    "a buffer is no RDMA device's to reach, and is copied: ", added.message());
  return false;
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
