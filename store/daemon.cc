#include "store/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/durable_file.h"
#include "base/host_port.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/ops/metrics.h"
#include "base/ops/ops_server.h"
#include "base/status.h"
#include "store/chunk_store.h"
#include "store/data_service.h"
#include "store/maintenance.h"
#include "store/metrics.h"
#include "store/peer_ledger.h"
#include "store/rdma_listener.h"
#include "store/room_keeper.h"
#include "store/segment_manager.h"
#include "store/segment_manifest.h"
#include "store/segment_set.h"
#include "store/session_client.h"
#include "store/shm_listener.h"
#include "store/store_session.h"
#include "store/version_ceiling.h"
#include "store/work_thread.h"
#include "transport/call_meter.h"
#include "transport/rdma/rdma.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace cistern::store {
namespace {

constexpr size_t kMinTokenBytes = 32;
// Gets that wait for their chunks to be verified; each may hold what a get may hold.
constexpr size_t kMaxVerifyingGets = 4'096;
constexpr absl::Duration kPoolIdAttempt = absl::Seconds(2);

// The pool this folder belongs to; zero before the store has met one.
absl::StatusOr<PoolId> ReadPoolId(const std::string& data_dir) {
  std::ifstream file(data_dir + "/pool");
  std::string hex;
  if (!(file >> hex)) return PoolId{};
  absl::StatusOr<PoolId> id = PoolId::ParseHex(hex);
  if (!id.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(data_dir, "/pool is damaged: it holds the pool's id in 32 hex digits"));
  }
  return id;
}

absl::Status WritePoolId(const std::string& data_dir, const PoolId& id) {
  return WriteFileDurably(data_dir, "pool", id.ToHex() + "\n");
}

// While the master does not answer, which an administrator may look for in the log much later.
constexpr absl::Duration kTellEvery = absl::Minutes(1);

// A store that starts for the first time learns its pool from the master, which proves the token.
absl::StatusOr<PoolId> LearnPoolId(const config::StoreConfig& config,
                                   const transport::LocalIdentity& identity, Clock& clock,
                                   const std::function<bool()>& stop) {
  MonoTime tell_at = clock.Mono();
  while (!stop()) {
    const absl::StatusOr<PoolId> id =
        FetchPoolId(config.master_address(), identity, clock, kPoolIdAttempt);
    if (id.ok()) return id;
    // Waiting cures an absent master, not a wrong token.
    if (id.status().code() == absl::StatusCode::kPermissionDenied ||
        id.status().code() == absl::StatusCode::kFailedPrecondition) {
      return id;
    }
    if (clock.Mono() >= tell_at) {
      tell_at = clock.Mono() + kTellEvery;
      CISTERN_LOG(Warning, "waiting for the master at ", config.master_address(),
                  " (its gRPC port, 7601 where nothing else is set; 7600 is for clients) to learn "
                  "which pool this store joins: ",
                  id.status().ToString());
    }
    clock.SleepFor(absl::Milliseconds(100));
  }
  return absl::CancelledError("stopped while waiting for the master");
}

// The inside of a JSON string.
std::string JsonText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

// A thread that has not come round for so long hangs: it is due every few milliseconds, and a check
// of the largest chunk takes less than a second.
constexpr absl::Duration kHungAfter = absl::Seconds(10);
constexpr absl::Duration kProbeTime = absl::Seconds(2);

class StoreDaemonImpl final : public StoreDaemon, private OpsSource {
 public:
  StoreDaemonImpl(const config::StoreConfig& config, Clock& clock)
      : config_(config),
        clock_(clock),
        started_at_(clock.Mono()),
        meter_(StoreCallNames(), clock) {}
  ~StoreDaemonImpl() override { Stop(); }

  absl::Status Start(const std::function<bool()>& stop);

  uint16_t data_port() const override { return server_->port(); }
  uint16_t http_port() const override { return ops_ == nullptr ? 0 : ops_->port(); }
  std::string endpoints_json() const override;
  bool Alive() override;
  std::string StatusLine() override;
  void Stop() override;
  void Hurry() override { meter_.Hurry(); }

 private:
  Health GetHealth() override;
  std::string GetMetrics() override;
  absl::Status ListenForOperators();
  std::string HttpAddress() const;
  absl::Status MakeIdentity(const std::function<bool()>& stop);
  absl::Status Recover(const std::function<bool()>& stop);
  PeerLedger::Options LedgerOptions() const;
  void MakeParts();
  absl::Status Listen();
  absl::Status ListenOnSharedMemory(const transport::TcpServerOptions& tcp);
  void ListenForRdma(const transport::TcpServerOptions& tcp);
  // Of the wires in the order of StoreCounters.bytes_by_wire; null where one does not listen.
  std::array<transport::WireServer*, 3> Servers() const {
    return {server_.get(), shm_server_.get(), rdma_server_.get()};
  }
  wire::Endpoint OwnEndpoint() const;
  void AddCounters(wire::StoreCounters* counters) const;

  const config::StoreConfig config_;
  Clock& clock_;
  transport::LocalIdentity identity_;
  const MonoTime started_at_;
  std::atomic<uint64_t> got_bytes_{0};
  SegmentPlace segment_place_;
  std::vector<SegmentSpec> configured_segments_;
  SegmentManifest manifest_;  // as found; the manager's from then on
  std::atomic<bool> stopping_{false};
  // In the order of their making; each borrows from those above it.
  std::shared_ptr<transport::rdma::Host> rdma_;  // null: no RDMA
  std::string why_no_rdma_;                      // where it does not listen for it
  std::unique_ptr<ChunkStore> chunks_;
  transport::CallMeter meter_;  // outlives what may keep a call: room_
  std::unique_ptr<RoomKeeper> room_;
  std::unique_ptr<SegmentManager> segments_;  // its poke needs session_client_: started last
  std::unique_ptr<PeerLedger> peers_;
  std::unique_ptr<StoreSession> session_;
  std::unique_ptr<SessionClient> session_client_;
  std::unique_ptr<Maintenance> maintenance_;
  WorkThread verifying_{kMaxVerifyingGets, clock_};
  std::unique_ptr<DataService> service_;
  std::unique_ptr<transport::WireServer> server_;
  std::unique_ptr<transport::WireServer> shm_server_;   // null where shm.enabled = false
  std::string socket_path_;                             // its socket
  std::unique_ptr<transport::WireServer> rdma_server_;  // null: no RDMA
  std::unique_ptr<OpsServer> ops_;
};

absl::Status StoreDaemonImpl::Start(const std::function<bool()>& stop) {
  CISTERN_RETURN_IF_ERROR(MakeDirs(config_.data_dir()));
  if (!config_.run_dir().empty()) CISTERN_RETURN_IF_ERROR(MakeDirs(config_.run_dir()));
  CISTERN_RETURN_IF_ERROR(ListenForOperators());
  CISTERN_RETURN_IF_ERROR(MakeIdentity(stop));
  CISTERN_RETURN_IF_ERROR(Recover(stop));
  MakeParts();
  CISTERN_RETURN_IF_ERROR(Listen());
  session_->AddEndpoint(OwnEndpoint());
  segments_->Start();
  session_client_->Start();
  maintenance_->Start();
  verifying_.Start();
  if (ops_ != nullptr) ops_->SetSource(this);
  return absl::OkStatus();
}

// First of all: a start can take long, and whoever asks hears that it is under way.
absl::Status StoreDaemonImpl::ListenForOperators() {
  if (!config_.http_enabled()) return absl::OkStatus();
  OpsServer::Options options;
  options.name = "cistern-store";
  options.address = config_.http_address();
  options.port = static_cast<uint16_t>(config_.http_port());
  options.clock = &clock_;
  CISTERN_ASSIGN_OR_RETURN(ops_, OpsServer::Start(std::move(options)));
  return absl::OkStatus();
}

absl::Status StoreDaemonImpl::MakeIdentity(const std::function<bool()>& stop) {
  identity_.kind = wire::PEER_STORE;
  RandomBytes(&identity_.incarnation, sizeof(identity_.incarnation));
  identity_.boot_id = transport::ReadBootId();
  identity_.software_version = std::string(SoftwareVersion());
  if (!config_.pool_token_file().empty()) {
    // Whatever is wrong with the file, the configuration that names it is.
    absl::StatusOr<std::string> token = ReadSecretFile(config_.pool_token_file(), kMinTokenBytes);
    if (!token.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pool_token_file: ", token.status().message(),
                       absl::IsNotFound(token.status())
                           ? ": copy the token there that cistern-master --init has made"
                           : ""));
    }
    identity_.token = *std::move(token);
  }
  CISTERN_ASSIGN_OR_RETURN(identity_.pool_id, ReadPoolId(config_.data_dir()));
  if (identity_.pool_id.IsZero()) {
    CISTERN_ASSIGN_OR_RETURN(identity_.pool_id, LearnPoolId(config_, identity_, clock_, stop));
    CISTERN_RETURN_IF_ERROR(WritePoolId(config_.data_dir(), identity_.pool_id));
    CISTERN_LOG(Info, "this store joins pool ", identity_.pool_id.ToHex());
  }
  return absl::OkStatus();
}

absl::Status StoreDaemonImpl::Recover(const std::function<bool()>& stop) {
  VersionCeiling::Options options;
  options.data_dir = config_.data_dir();
  options.pool_id = identity_.pool_id;
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<VersionCeiling> versions, VersionCeiling::Open(options));
  identity_.peer_id = std::string(versions->store_id().view());
  const absl::Time now = clock_.Wall();
  CISTERN_RETURN_IF_ERROR(MakeDirs(config_.segment_dir()));
  segment_place_ = {config_.data_dir(), config_.segment_dir(), identity_.pool_id,
                    config_.expected_chunk_bytes(), /*lend=*/{}};
  rdma_ = OpenRdmaHost(config_.rdma(), /*has_token=*/!identity_.token.empty(), &why_no_rdma_);
  if (rdma_ != nullptr) {
    segment_place_.lend = [host = rdma_](const std::string& name, char* base, uint64_t bytes) {
      return RegisterSegment(host, name, base, bytes);
    };
  }
  CISTERN_ASSIGN_OR_RETURN(configured_segments_, ConfiguredSegments(config_));
  CISTERN_ASSIGN_OR_RETURN(
      std::vector<std::unique_ptr<Segment>> segments,
      OpenSegments(segment_place_, configured_segments_, now, stop, &manifest_));
  ChunkStoreOptions store_options;
  store_options.max_inflight_bytes = config_.max_inflight_bytes();
  store_options.record_log_records = config_.record_log_records();
  RandomBytes(&store_options.hash_seed, sizeof(store_options.hash_seed));
  CISTERN_ASSIGN_OR_RETURN(
      chunks_, ChunkStore::Create(store_options, std::move(segments), std::move(versions), now));
  const RecoveryReport& report = chunks_->recovery();
  CISTERN_LOG(Info, "store ", chunks_->store_id().ToHex(), " holds ", report.recovered_chunks,
              " chunks, ", FormatSize(report.recovered_bytes), " (dropped: ", report.writing,
              " unfinished, ", report.damaged, " damaged, ", report.overlapping, " overlapping, ",
              report.duplicate, " superseded, ", report.orphaned, " of unknown namespaces, ",
              report.expired, " expired)");
  return absl::OkStatus();
}

// Of the largest segment: what a peer's share is reckoned from is where its chunks can be.
PeerLedger::Options StoreDaemonImpl::LedgerOptions() const {
  uint64_t segment_bytes = 0;
  for (const config::SegmentConfig& segment : config_.segment()) {
    segment_bytes = std::max(segment_bytes, segment.size_bytes());
  }
  PeerLedger::Options options;
  options.share_bytes =
      static_cast<uint64_t>(config_.max_peer_share() * static_cast<double>(segment_bytes));
  options.period = absl::Milliseconds(config_.slow_peer_ms());
  return options;
}

void StoreDaemonImpl::MakeParts() {
  RoomKeeper::Options room_options;
  room_options.self_evict_after = absl::Milliseconds(config_.self_evict_after_ms());
  room_ = std::make_unique<RoomKeeper>(*chunks_, clock_, room_options);

  SegmentManager::Options segment_options;
  segment_options.place = segment_place_;
  segment_options.configured = configured_segments_;
  segment_options.huge_pages = ParseHugePages(config_.huge_pages()).value_or(HugePages::kNever);
  segment_options.poke = [this] { session_client_->Poke(); };
  segments_ = std::make_unique<SegmentManager>(std::move(segment_options), std::move(manifest_),
                                               *chunks_, clock_);

  StoreSession::Options session_options;
  session_options.name = config_.name();
  session_options.add_counters = [this](wire::StoreCounters* counters) { AddCounters(counters); };
  session_options.segment_command = [this](const wire::SegmentCommand& command) {
    segments_->Execute(command);
  };
  session_options.take_segment_done = [this] { return segments_->TakeDone(); };
  session_options.started_at = started_at_;
  session_ = std::make_unique<StoreSession>(identity_, *chunks_, std::move(session_options));
  session_client_ = std::make_unique<SessionClient>(config_.master_address(), *session_, clock_);
  room_->SetMaster([this] { return session_client_->alone_for(); },
                   [this](uint64_t bytes, uint64_t extent_bytes) {
                     session_client_->NeedBytes(bytes, extent_bytes);
                   });

  const auto poke = [this] { session_client_->Poke(); };
  peers_ = std::make_unique<PeerLedger>(LedgerOptions());
  maintenance_ = std::make_unique<Maintenance>(*chunks_, *room_, *peers_, clock_, poke);
  ServiceContext context;
  context.chunks = chunks_.get();
  context.room = room_.get();
  context.peers = peers_.get();
  context.clock = &clock_;
  context.poke_session = poke;
  context.run_in_background = [this](absl::AnyInvocable<void()> task) {
    return maintenance_->Run(std::move(task));
  };
  context.run_verifying = [this](absl::AnyInvocable<void()> task) {
    return verifying_.Run(std::move(task));
  };
  context.incarnation = identity_.incarnation;
  context.got_bytes = &got_bytes_;
  context.max_batch_payload_bytes = config_.max_batch_payload_bytes();
  service_ = std::make_unique<DataService>(std::move(context));
  meter_.SetHandler(service_.get());
}

absl::Status StoreDaemonImpl::Listen() {
  transport::TcpServerOptions options;
  options.listen_address = config_.listen_address();
  options.port = static_cast<uint16_t>(config_.data_port());
  options.io_threads = static_cast<int>(config_.io_threads());
  options.limits.max_connections = config_.max_connections();
  options.limits.max_payload_bytes = config_.max_batch_payload_bytes();
  options.limits.handshake_timeout = absl::Milliseconds(config_.handshake_timeout_ms());
  options.limits.idle_timeout = absl::Milliseconds(config_.idle_timeout_ms());
  options.limits.stall_timeout = absl::Milliseconds(config_.stall_timeout_ms());
  options.identity = identity_;
  options.clock = &clock_;
  CISTERN_ASSIGN_OR_RETURN(server_, transport::ListenTcp(options, &meter_));
  if (config_.shm().enabled()) CISTERN_RETURN_IF_ERROR(ListenOnSharedMemory(options));
  if (rdma_ != nullptr) ListenForRdma(options);
  return absl::OkStatus();
}

void StoreDaemonImpl::ListenForRdma(const transport::TcpServerOptions& tcp) {
  transport::RdmaServerOptions options;
  options.host = rdma_;
  options.port = server_->port();
  options.io_threads = tcp.io_threads;
  options.polling = RdmaPolling(config_.rdma());
  options.limits = tcp.limits;
  options.identity = tcp.identity;
  options.clock = tcp.clock;
  rdma_server_ = ListenOnRdma(std::move(options), &meter_, &why_no_rdma_);
}

absl::Status StoreDaemonImpl::ListenOnSharedMemory(const transport::TcpServerOptions& tcp) {
  CISTERN_ASSIGN_OR_RETURN(
      transport::ShmServerOptions options,
      ShmOptions(config_.shm(),
                 config_.run_dir().empty() ? config_.data_dir() : config_.run_dir()));
  options.io_threads = tcp.io_threads;
  options.limits = tcp.limits;
  options.identity = tcp.identity;
  options.clock = tcp.clock;
  auto server = transport::ListenShm(options, &meter_);
  if (!server.ok()) return Annotate(server.status(), "shared memory (shm.enabled)");
  shm_server_ = *std::move(server);
  socket_path_ = options.socket_path;
  CISTERN_LOG(Info, "shared memory for clients on this host: ", shm_server_->address());
  return absl::OkStatus();
}

wire::Endpoint StoreDaemonImpl::OwnEndpoint() const {
  wire::Endpoint endpoint;
  endpoint.set_host(config_.advertise_address().empty() ? config_.listen_address()
                                                        : config_.advertise_address());
  endpoint.set_port(server_->port());
  endpoint.set_boot_id(std::string(identity_.boot_id.view()));
  endpoint.set_socket_path(socket_path_);
  if (rdma_server_ != nullptr) {
    endpoint.set_rdma_port(rdma_server_->port());
    for (const std::string& address : rdma_->Addresses()) endpoint.add_rdma_addresses(address);
  } else {
    endpoint.set_no_rdma(why_no_rdma_);
  }
  return endpoint;
}

void StoreDaemonImpl::AddCounters(wire::StoreCounters* counters) const {
  counters->set_get_bytes(got_bytes_.load(std::memory_order_relaxed));
  uint64_t connections = 0;
  uint64_t protocol_errors = 0;
  for (const transport::WireServer* server : Servers()) {
    const transport::ServerStats stats =
        server != nullptr ? server->stats() : transport::ServerStats();
    connections += stats.connections;
    counters->add_connections_by_wire(stats.connections);
    protocol_errors += stats.protocol_errors;
    counters->add_bytes_by_wire(stats.bytes_in);
    counters->add_bytes_by_wire(stats.bytes_out);
  }
  counters->set_connections(connections);
  counters->set_protocol_errors(protocol_errors);
}

std::string StoreDaemonImpl::endpoints_json() const {
  const wire::Endpoint endpoint = OwnEndpoint();
  const bool ipv6 = endpoint.host().find(':') != std::string::npos;
  return absl::StrCat("{\"kind\":\"store\",\"pid\":", getpid(), ",\"id\":\"",
                      chunks_->store_id().ToHex(), "\",\"pool_id\":\"", identity_.pool_id.ToHex(),
                      "\",\"data\":\"", ipv6 ? "[" : "", endpoint.host(), ipv6 ? "]:" : ":",
                      endpoint.port(), "\",\"http\":\"", HttpAddress(), "\",\"socket\":\"",
                      JsonText(socket_path_), "\"}\n");
}

// "" when there is none.
std::string StoreDaemonImpl::HttpAddress() const {
  return ops_ == nullptr ? "" : HostAndPort(config_.http_address(), ops_->port());
}

bool StoreDaemonImpl::Alive() {
  const auto servers = Servers();
  return maintenance_->since_tick() < kHungAfter && verifying_.busy_for() < kHungAfter &&
         std::all_of(servers.begin(), servers.end(), [](transport::WireServer* server) {
           return server == nullptr || server->Responsive(kProbeTime);
         });
}

std::string StoreDaemonImpl::StatusLine() {
  const SessionClient::Numbers session = session_client_->numbers();
  wire::TierUsage usage;
  chunks_->Usage(clock_.Wall(), &usage);
  return absl::StrCat(session.in_session ? "in session, epoch " : "no session with the master at ",
                      session.in_session ? absl::StrCat(session.epoch) : config_.master_address(),
                      "; ", usage.chunk_count(), " chunks, ", FormatSize(usage.used_bytes()),
                      " of ", FormatSize(usage.capacity_bytes()));
}

Health StoreDaemonImpl::GetHealth() {
  Health health;
  const bool stopping = stopping_.load(std::memory_order_acquire);
  const SessionClient::Numbers session = session_client_->numbers();
  // While it stops its threads end one after the other: that is no hang.
  health.alive = stopping || Alive();
  health.ready = health.alive && !stopping && session.in_session;
  nlohmann::json json = {
      {"kind", "store"},
      {"status", stopping             ? "stopping"
                 : !health.alive      ? "wedged"
                 : session.in_session ? "serving"
                                      : "no_session"},
      {"store_id", chunks_->store_id().ToHex()},
      {"pool_id", identity_.pool_id.ToHex()},
      {"data", HostAndPort(OwnEndpoint().host(), server_->port())},
      {"http", HttpAddress()},
      {"master", config_.master_address()},
      {"in_session", session.in_session},
      {"epoch", session.epoch},
      {"uptime_seconds", absl::ToDoubleSeconds(clock_.Mono() - started_at_)},
  };
  if (!session.in_session) {
    json["alone_seconds"] = absl::ToDoubleSeconds(session_client_->alone_for());
  }
  if (health.alive) {
    // Not when it hangs: whoever hangs may have the lock.
    std::vector<wire::SegmentInfo> segments;
    chunks_->SegmentInfos(&segments);
    json["segments"] = segments.size();
    json["chunks"] = chunks_->chunk_count();
  }
  health.json = json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return health;
}

std::string StoreDaemonImpl::GetMetrics() {
  StoreObservation seen;
  seen.uptime = clock_.Mono() - started_at_;
  chunks_->Usage(clock_.Wall(), &seen.tiers.emplace_back());
  chunks_->SegmentInfos(&seen.segments);
  chunks_->FillCounters(&seen.counters);
  AddCounters(&seen.counters);
  seen.records = chunks_->log().range();  // after the counters: acknowledged is not below zero
  seen.puts = chunks_->put_outcomes();
  seen.recovery = chunks_->recovery();
  seen.namespace_count = chunks_->namespace_count();
  uint32_t next = 0;
  while (chunks_->NamespaceNumbersFrom(&next, kMetricNamespaces, &seen.other_namespaces,
                                       &seen.namespaces)) {
  }
  seen.session = session_client_->numbers();
  seen.waiting_puts = room_->waiter_count();
  seen.background_tasks = maintenance_->queued() + verifying_.queued();
  seen.since_maintenance = maintenance_->since_tick();
  seen.calls = meter_.Read();
  seen.calls_in_progress = meter_.in_progress();
  for (const transport::WireServer* server : Servers()) {
    if (server != nullptr) seen.clients += server->stats();
  }
  MetricsPage page(StoreMetrics());
  FillStoreMetrics(seen, &page);
  return page.ToText();
}

void StoreDaemonImpl::Stop() {
  stopping_.store(true, std::memory_order_release);
  // The master hears it first and sends nobody here any more. What is still put meanwhile it learns
  // from the next session's snapshot.
  meter_.Close();
  for (transport::WireServer* server : Servers()) {
    if (server != nullptr) server->StopAccepting();
  }
  if (session_client_ != nullptr) session_client_->Stop();
  if (server_ != nullptr) {
    const auto grace = absl::Milliseconds(static_cast<int64_t>(config_.stop_grace_ms()));
    if (const uint64_t left = meter_.WaitIdle(grace); left != 0) {
      CISTERN_LOG(Warning, left, " calls in progress are cut off");
    }
    server_->Stop();
  }
  if (shm_server_ != nullptr) shm_server_->Stop();
  if (rdma_server_ != nullptr) rdma_server_->Stop();
  if (segments_ != nullptr) segments_->Stop();
  // Calls are over, nothing holds a chunk: now who works on the chunks.
  if (maintenance_ != nullptr) maintenance_->Stop();
  verifying_.Stop();
  // Until here operators could look on.
  if (ops_ != nullptr) ops_->Stop();
}

}  // namespace

absl::Status StoreDaemon::CheckConfig(const config::StoreConfig& config) {
  if (config.segment_size() == 0) {
    return absl::InvalidArgumentError(
        "no [[segment]]: a store needs at least one: a line [[segment]] and below it size = "
        "\"16GiB\"");
  }
  if (config.pool_token_file().empty() && !IsLoopbackAddress(config.listen_address())) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_address is ", config.listen_address(),
                     ": anything but loopback needs pool_token_file"));
  }
  CISTERN_RETURN_IF_ERROR(CheckShmConfig(config.shm()));
  CISTERN_RETURN_IF_ERROR(RdmaHostOptions(config.rdma()).status());
  if (static_cast<size_t>(config.segment_size()) > ChunkStore::kMaxSegments) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.segment_size(), " segments: a store has at most ", ChunkStore::kMaxSegments));
  }
  if (config.http_enabled() && config.pool_token_file().empty() &&
      !IsLoopbackAddress(config.http_address())) {
    return absl::InvalidArgumentError(
        absl::StrCat("http_address '", config.http_address(),
                     "' can be reached from other hosts: a pool without pool_token_file keeps to "
                     "this one"));
  }
  if (config.http_enabled() && config.http_port() != 0 &&
      config.http_port() == config.data_port()) {
    return absl::InvalidArgumentError("http_port and data_port must differ");
  }
  CISTERN_RETURN_IF_ERROR(ConfiguredSegments(config).status());
  if (absl::Status status = ParseHostPort(config.master_address()).status(); !status.ok()) {
    return Annotate(status, "master_address");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StoreDaemon>> StoreDaemon::Start(const config::StoreConfig& config,
                                                                Clock& clock,
                                                                const std::function<bool()>& stop) {
  CISTERN_RETURN_IF_ERROR(CheckConfig(config));
  auto daemon = std::make_unique<StoreDaemonImpl>(config, clock);
  CISTERN_RETURN_IF_ERROR(daemon->Start(stop));
  return daemon;
}

}  // namespace cistern::store
