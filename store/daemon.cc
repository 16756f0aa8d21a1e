#include "store/daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/daemon.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/status.h"
#include "store/chunk_store.h"
#include "store/data_service.h"
#include "store/maintenance.h"
#include "store/peer_ledger.h"
#include "store/room_keeper.h"
#include "store/segment.h"
#include "store/session_client.h"
#include "store/store_session.h"
#include "store/version_ceiling.h"
#include "transport/tcp/tcp.h"

namespace cistern::store {
namespace {

constexpr size_t kMinTokenBytes = 32;
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
  const std::string path = data_dir + "/pool";
  const std::string temporary = path + ".new";
  const std::string text = id.ToHex() + "\n";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", temporary));
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    fdatasync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!good) return ErrnoStatus(error, absl::StrCat("cannot write ", temporary));
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

// A store that starts for the first time learns its pool from the master, which proves the token.
absl::StatusOr<PoolId> LearnPoolId(const config::StoreConfig& config,
                                   const transport::LocalIdentity& identity, Clock& clock,
                                   const std::function<bool()>& stop) {
  bool told = false;
  while (!stop()) {
    const absl::StatusOr<PoolId> id =
        FetchPoolId(config.master_address(), identity, clock, kPoolIdAttempt);
    if (id.ok()) return id;
    // Waiting cures an absent master, not a wrong token.
    if (id.status().code() == absl::StatusCode::kPermissionDenied ||
        id.status().code() == absl::StatusCode::kFailedPrecondition) {
      return id;
    }
    if (!std::exchange(told, true)) {
      CISTERN_LOG(Warning, "waiting for the master at ", config.master_address(),
                  " to learn which pool this store joins: ", id.status().ToString());
    }
    clock.SleepFor(absl::Milliseconds(100));
  }
  return absl::CancelledError("stopped while waiting for the master");
}

absl::StatusOr<std::vector<std::unique_ptr<Segment>>> OpenSegments(
    const config::StoreConfig& config, const PoolId& pool_id, absl::Time now) {
  CISTERN_RETURN_IF_ERROR(MakeDirs(config.segment_dir()));
  std::vector<std::unique_ptr<Segment>> segments;
  for (int i = 0; i < config.segment_size(); ++i) {
    const config::SegmentConfig& entry = config.segment(i);
    SegmentOptions options;
    options.kind = entry.kind() == "memfd" ? SegmentKind::kMemfd : SegmentKind::kFile;
    const std::string name = entry.name().empty() ? absl::StrCat("dram-", i) : entry.name();
    options.path =
        options.kind == SegmentKind::kMemfd ? name : absl::StrCat(config.segment_dir(), "/", name);
    options.bytes = entry.size_bytes();
    options.expected_chunk_bytes = config.expected_chunk_bytes();
    options.pool_id = pool_id;
    CISTERN_LOG(Info, "opening segment ", options.path, ", ", FormatSize(options.bytes));
    absl::StatusOr<std::unique_ptr<Segment>> segment = Segment::Open(options, now);
    if (!segment.ok()) return segment.status();
    segments.push_back(*std::move(segment));
  }
  return segments;
}

class StoreDaemonImpl final : public StoreDaemon {
 public:
  StoreDaemonImpl(const config::StoreConfig& config, Clock& clock)
      : config_(config), clock_(clock) {}
  ~StoreDaemonImpl() override { Stop(); }

  absl::Status Start(const std::function<bool()>& stop);

  uint16_t data_port() const override { return server_->port(); }
  std::string endpoints_json() const override;
  void Stop() override;

 private:
  absl::Status MakeIdentity(const std::function<bool()>& stop);
  absl::Status Recover();
  PeerLedger::Options LedgerOptions() const;
  void MakeParts();
  absl::Status Listen();
  wire::Endpoint OwnEndpoint() const;
  void AddCounters(wire::StoreCounters* counters) const;

  const config::StoreConfig config_;
  Clock& clock_;
  transport::LocalIdentity identity_;
  std::atomic<uint64_t> got_bytes_{0};
  // In the order of their making; each borrows from those above it.
  std::unique_ptr<ChunkStore> chunks_;
  std::unique_ptr<RoomKeeper> room_;
  std::unique_ptr<PeerLedger> peers_;
  std::unique_ptr<StoreSession> session_;
  std::unique_ptr<SessionClient> session_client_;
  std::unique_ptr<Maintenance> maintenance_;
  std::unique_ptr<DataService> service_;
  std::unique_ptr<transport::WireServer> server_;
};

absl::Status StoreDaemonImpl::Start(const std::function<bool()>& stop) {
  CISTERN_RETURN_IF_ERROR(MakeDirs(config_.data_dir()));
  if (!config_.run_dir().empty()) CISTERN_RETURN_IF_ERROR(MakeDirs(config_.run_dir()));
  CISTERN_RETURN_IF_ERROR(MakeIdentity(stop));
  CISTERN_RETURN_IF_ERROR(Recover());
  MakeParts();
  CISTERN_RETURN_IF_ERROR(Listen());
  session_->AddEndpoint(OwnEndpoint());
  session_client_->Start();
  maintenance_->Start();
  return absl::OkStatus();
}

absl::Status StoreDaemonImpl::MakeIdentity(const std::function<bool()>& stop) {
  identity_.kind = wire::PEER_STORE;
  RandomBytes(&identity_.incarnation, sizeof(identity_.incarnation));
  identity_.boot_id = transport::ReadBootId();
  identity_.software_version = std::string(SoftwareVersion());
  if (!config_.pool_token_file().empty()) {
    CISTERN_ASSIGN_OR_RETURN(identity_.token,
                             ReadSecretFile(config_.pool_token_file(), kMinTokenBytes));
  }
  CISTERN_ASSIGN_OR_RETURN(identity_.pool_id, ReadPoolId(config_.data_dir()));
  if (identity_.pool_id.IsZero()) {
    CISTERN_ASSIGN_OR_RETURN(identity_.pool_id, LearnPoolId(config_, identity_, clock_, stop));
    CISTERN_RETURN_IF_ERROR(WritePoolId(config_.data_dir(), identity_.pool_id));
    CISTERN_LOG(Info, "this store joins pool ", identity_.pool_id.ToHex());
  }
  return absl::OkStatus();
}

absl::Status StoreDaemonImpl::Recover() {
  VersionCeiling::Options options;
  options.data_dir = config_.data_dir();
  options.pool_id = identity_.pool_id;
  CISTERN_ASSIGN_OR_RETURN(std::unique_ptr<VersionCeiling> versions, VersionCeiling::Open(options));
  identity_.peer_id = std::string(versions->store_id().view());
  const absl::Time now = clock_.Wall();
  CISTERN_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Segment>> segments,
                           OpenSegments(config_, identity_.pool_id, now));
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

  StoreSession::Options session_options;
  session_options.name = config_.name();
  session_options.add_counters = [this](wire::StoreCounters* counters) { AddCounters(counters); };
  session_options.started_at = clock_.Mono();
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
  context.got_bytes = &got_bytes_;
  context.max_batch_payload_bytes = config_.max_batch_payload_bytes();
  service_ = std::make_unique<DataService>(std::move(context));
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
  CISTERN_ASSIGN_OR_RETURN(server_, transport::ListenTcp(options, service_.get()));
  return absl::OkStatus();
}

wire::Endpoint StoreDaemonImpl::OwnEndpoint() const {
  wire::Endpoint endpoint;
  endpoint.set_host(config_.advertise_address().empty() ? config_.listen_address()
                                                        : config_.advertise_address());
  endpoint.set_port(server_->port());
  endpoint.set_boot_id(std::string(identity_.boot_id.view()));
  return endpoint;
}

void StoreDaemonImpl::AddCounters(wire::StoreCounters* counters) const {
  const transport::ServerStats stats = server_->stats();
  counters->set_get_bytes(got_bytes_.load(std::memory_order_relaxed));
  counters->set_connections(stats.connections);
  counters->set_protocol_errors(stats.protocol_errors);
  counters->add_bytes_by_wire(stats.bytes_in);
  counters->add_bytes_by_wire(stats.bytes_out);
}

std::string StoreDaemonImpl::endpoints_json() const {
  const wire::Endpoint endpoint = OwnEndpoint();
  const bool ipv6 = endpoint.host().find(':') != std::string::npos;
  return absl::StrCat("{\"kind\":\"store\",\"pid\":", getpid(), ",\"id\":\"",
                      chunks_->store_id().ToHex(), "\",\"pool_id\":\"", identity_.pool_id.ToHex(),
                      "\",\"data\":\"", ipv6 ? "[" : "", endpoint.host(), ipv6 ? "]:" : ":",
                      endpoint.port(), "\",\"socket\":\"\"}\n");
}

void StoreDaemonImpl::Stop() {
  // Calls first, so that nothing holds a chunk; then who works on the chunks.
  if (server_ != nullptr) server_->Stop();
  if (maintenance_ != nullptr) maintenance_->Stop();
  if (session_client_ != nullptr) session_client_->Stop();
}

}  // namespace

absl::Status StoreDaemon::CheckConfig(const config::StoreConfig& config) {
  if (config.segment_size() == 0) {
    return absl::InvalidArgumentError(
        "no [[segment]]: a store needs at least one, e.g. [[segment]] size = \"16GiB\"");
  }
  if (config.pool_token_file().empty() && !IsLoopbackAddress(config.listen_address())) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen_address is ", config.listen_address(),
                     ": anything but loopback needs pool_token_file"));
  }
  for (const config::SegmentConfig& segment : config.segment()) {
    if (segment.name().find('/') != std::string::npos || segment.name() == "." ||
        segment.name() == "..") {
      return absl::InvalidArgumentError(
          absl::StrCat("segment name '", segment.name(), "' must be a plain file name"));
    }
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
