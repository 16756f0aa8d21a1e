#include "master/master_daemon.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/daemon.h"
#include "base/heap_trim.h"
#include "base/key_hash.h"
#include "base/log.h"
#include "base/ops/metrics.h"
#include "base/ops/ops_server.h"
#include "base/status.h"
#include "master/admin_service.h"
#include "master/control_grpc.h"
#include "master/core_driver.h"
#include "master/frame_service.h"
#include "master/metrics.h"
#include "master/pool_folder.h"
#include "master/segment_commands.h"
#include "master/session_service.h"
#include "master/settings.h"
#include "master/ticker.h"
#include "transport/call_meter.h"
#include "transport/tcp/tcp.h"

namespace cistern::master {
namespace {

constexpr absl::Duration kStopGrace = absl::Milliseconds(500);

uint64_t RandomNumber() {
  uint64_t n;
  RandomBytes(&n, sizeof(n));
  return n;
}

transport::LocalIdentity IdentityOf(const std::string& token, const PoolId& pool_id) {
  transport::LocalIdentity identity;
  identity.kind = wire::PEER_MASTER;
  identity.token = token;
  identity.pool_id = pool_id;
  identity.peer_id.assign(StoreId::kBytes, '\0');
  RandomBytes(identity.peer_id.data(), identity.peer_id.size());
  identity.incarnation = RandomNumber();
  identity.boot_id = transport::ReadBootId();
  identity.software_version = std::string(SoftwareVersion());
  return identity;
}

// The system's random bytes, a page at a time: a lookup's lease takes 16. Not thread-safe; no byte
// is given twice, or kept after it was.
class RandomSupply {
 public:
  void Take(void* out, size_t n) {
    if (n > kBytes) return RandomBytes(out, n);
    if (kBytes - used_ < n) {
      RandomBytes(bytes_.data(), kBytes);
      used_ = 0;
    }
    std::memcpy(out, bytes_.data() + used_, n);
    std::memset(bytes_.data() + used_, 0, n);
    used_ += n;
  }

 private:
  static constexpr size_t kBytes = 4096;
  std::array<uint8_t, kBytes> bytes_;
  size_t used_ = kBytes;
};

CoreDriver::Options DriverOptions(const config::MasterConfig& config, const PoolIdentity& pool) {
  CoreDriver::Options options;
  options.core = CoreOptions(config);
  options.core.pool_id = pool.pool_id;
  options.core.pool_birth_unix_ms = pool.birth_unix_ms;
  options.core.hash_seed = RandomNumber();
  options.core.random_bytes = [supply = std::make_shared<RandomSupply>()](void* out, size_t n) {
    supply->Take(out, n);  // under the core's lock
  };
  return options;
}

// What clients on other hosts can dial.
std::string ReachableHost(const std::string& listen_address) {
  if (listen_address != "0.0.0.0" && listen_address != "::") return listen_address;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : listen_address;
}

// A thread that has not come round for so long hangs: it is due every 10 ms.
constexpr absl::Duration kHungAfter = absl::Seconds(10);
constexpr absl::Duration kProbeTime = absl::Seconds(2);

class Daemon final : public MasterDaemon, private OpsSource {
 public:
  Daemon(Options options, std::unique_ptr<RocksStateStore> state)
      : options_(std::move(options)),
        state_(std::move(state)),
        identity_(IdentityOf(options_.token, pool_id())),
        meter_(MasterCallNames(), *options_.clock),
        driver_(DriverOptions(options_.config, state_->pool()), *state_, *options_.clock),
        frames_(FrameService::Options(), driver_, *state_),
        segment_commands_(driver_),
        sessions_(SessionOptions(), driver_, *state_),
        admin_(AdminOptions(), driver_, *state_, segment_commands_) {
    driver_.SetOutput(&sessions_);
    meter_.SetHandler(&frames_);
  }
  ~Daemon() override { Stop(); }

  absl::Status StartServing();

  uint16_t data_port() const override { return wire_->port(); }
  uint16_t grpc_port() const override { return control_->port(); }
  uint16_t http_port() const override { return ops_ == nullptr ? 0 : ops_->port(); }
  PoolId pool_id() const override { return state_->pool().pool_id; }
  Epoch epoch() override {
    return driver_.With([](MasterCore& core, MonoTime) { return core.epoch(); });
  }
  std::string EndpointsJson() override;
  bool Alive() override;
  std::string StatusLine() override;
  void Stop() override;
  void Hurry() override { meter_.Hurry(); }

 private:
  Health GetHealth() override;
  std::string GetMetrics() override;
  absl::Status ListenForOperators();
  void WatchState();
  nlohmann::json Addresses() const;

  SessionService::Options SessionOptions();
  AdminService::Options AdminOptions();
  absl::Status ListenForClients();
  absl::Status ListenForStores();

  const Options options_;
  const std::unique_ptr<RocksStateStore> state_;
  const transport::LocalIdentity identity_;
  transport::CallMeter meter_;  // outlives what may keep a call: driver_
  CoreDriver driver_;
  FrameService frames_;
  SegmentCommands segment_commands_;
  SessionService sessions_;
  HeapTrimmer heap_{HeapTrimmer::Options()};  // the ticker's
  AdminService admin_;
  std::unique_ptr<transport::WireServer> wire_;
  std::unique_ptr<ControlServer> control_;
  std::optional<Ticker> ticker_;
  std::unique_ptr<OpsServer> ops_;
  std::atomic<bool> stopping_{false};
  bool state_saved_ = true;  // the ticker's: what was said last
};

SessionService::Options Daemon::SessionOptions() {
  SessionService::Options options;
  options.identity = identity_;
  options.handshake_timeout =
      absl::Milliseconds(static_cast<int64_t>(options_.config.handshake_timeout_ms()));
  options.on_segment_done = [this](SessionId session, wire::SegmentDone& done) {
    segment_commands_.OnAnswer(session, done);
  };
  options.on_fenced = options_.on_fatal;
  return options;
}

AdminService::Options Daemon::AdminOptions() {
  AdminService::Options options;
  options.token = options_.token;
  options.pool_id = pool_id();
  options.software_version = std::string(SoftwareVersion());
  options.build_mode = std::string(BuildMode());
  options.commit = std::string(CommitId());
  // gRPC serves only once wire_ is there.
  options.client_connections = [this] { return wire_->stats().connections; };
  return options;
}

absl::Status Daemon::StartServing() {
  CISTERN_RETURN_IF_ERROR(ListenForOperators());
  CISTERN_RETURN_IF_ERROR(
      driver_.With([](MasterCore& core, MonoTime now) { return core.Start(now); }));
  // The epoch is on disk before anybody can hear of it.
  CISTERN_RETURN_IF_ERROR(Annotate(state_->Flush(), "cannot save the epoch"));
  CISTERN_RETURN_IF_ERROR(ListenForClients());
  CISTERN_RETURN_IF_ERROR(ListenForStores());
  ticker_.emplace(Ticker::Options(), driver_, [this] {
    sessions_.Sweep();
    admin_.Sweep();
    segment_commands_.Sweep();
    WatchState();
    heap_.Look(driver_.clock().Mono());
  });
  if (ops_ != nullptr) ops_->SetSource(this);
  return absl::OkStatus();
}

absl::Status Daemon::ListenForOperators() {
  if (!options_.config.http_enabled()) return absl::OkStatus();
  OpsServer::Options options;
  options.name = "cistern-master";
  options.address = options_.config.http_address();
  options.port = static_cast<uint16_t>(options_.config.http_port());
  options.clock = options_.clock;
  CISTERN_ASSIGN_OR_RETURN(ops_, OpsServer::Start(std::move(options)));
  return absl::OkStatus();
}

absl::Status Daemon::ListenForClients() {
  const config::MasterConfig& config = options_.config;
  transport::TcpServerOptions options;
  options.listen_address = config.listen_address();
  options.port = static_cast<uint16_t>(config.data_port());
  options.io_threads = static_cast<int>(config.io_threads());
  options.identity = identity_;
  options.clock = options_.clock;
  options.limits.max_connections = config.max_connections();
  options.limits.handshake_timeout =
      absl::Milliseconds(static_cast<int64_t>(config.handshake_timeout_ms()));
  options.limits.max_payload_bytes = 0;  // no request to a master has any
  CISTERN_ASSIGN_OR_RETURN(wire_, transport::ListenTcp(options, &meter_));
  wire::Endpoint endpoint;
  endpoint.set_host(ReachableHost(config.listen_address()));
  endpoint.set_port(wire_->port());
  endpoint.set_boot_id(std::string(identity_.boot_id.view()));
  driver_.With([&](MasterCore& core, MonoTime) { core.SetEndpoint(endpoint); });
  return absl::OkStatus();
}

absl::Status Daemon::ListenForStores() {
  ControlServer::Options options;
  options.listen_address = options_.config.listen_address();
  options.port = static_cast<uint16_t>(options_.config.grpc_port());
  options.handshake_timeout =
      absl::Milliseconds(static_cast<int64_t>(options_.config.handshake_timeout_ms()));
  CISTERN_ASSIGN_OR_RETURN(control_, ControlServer::Start(options, &sessions_, &admin_));
  return absl::OkStatus();
}

// Whether durable state can be written: said once, and once when it can be again.
void Daemon::WatchState() {
  const absl::Status status = state_->last_write();
  if (status.ok() == state_saved_) return;
  state_saved_ = status.ok();
  if (status.ok()) {
    CISTERN_LOG(Info, "durable state is saved again: namespaces can be opened");
  } else {
    CISTERN_LOG(Error, "durable state cannot be saved: what is open goes on, new namespaces are ",
                "refused until it can be: ", std::string(status.message()));
  }
}

// As peers dial it; an HTTP port that is not there is "".
nlohmann::json Daemon::Addresses() const {
  const std::string host = ReachableHost(options_.config.listen_address());
  return {
      {"kind", "master"},
      {"pool_id", pool_id().ToHex()},
      {"data", HostAndPort(host, data_port())},
      {"grpc", HostAndPort(host, grpc_port())},
      {"http", ops_ == nullptr
                   ? ""
                   : HostAndPort(ReachableHost(options_.config.http_address()), ops_->port())},
  };
}

std::string Daemon::EndpointsJson() {
  nlohmann::json json = Addresses();
  json["pid"] = getpid();
  json["id"] = StoreId::FromBytes(identity_.peer_id.data()).ToHex();
  return json.dump(2) + "\n";
}

bool Daemon::Alive() {
  return ticker_->since_tick() < kHungAfter && sessions_.busy_for() < kHungAfter &&
         wire_->Responsive(kProbeTime);
}

std::string Daemon::StatusLine() {
  const PoolNumbers numbers =
      driver_.With([](MasterCore& core, MonoTime now) { return core.Numbers(now); });
  return absl::StrCat("epoch ", numbers.pool.epoch.value, ", ",
                      numbers.stores_by_state[static_cast<size_t>(StoreState::kServing)],
                      " stores serving, ", numbers.pool.chunk_count, " chunks");
}

Health Daemon::GetHealth() {
  Health health;
  const bool stopping = stopping_.load(std::memory_order_acquire);
  nlohmann::json json = Addresses();
  // While it stops its threads end one after the other: that is no hang.
  health.alive = stopping || Alive();
  const absl::Status saved = state_->last_write();
  health.ready = health.alive && !stopping && saved.ok();
  json["status"] = stopping        ? "stopping"
                   : !health.alive ? "wedged"
                   : saved.ok()    ? "serving"
                                   : "cannot_save";
  if (!saved.ok()) {
    json["problem"] = absl::StrCat("durable state cannot be saved, new namespaces are refused: ",
                                   saved.message());
  }
  if (health.alive) {
    // Not when it hangs: whoever hangs may have the lock.
    const PoolNumbers numbers =
        driver_.With([](MasterCore& core, MonoTime now) { return core.Numbers(now); });
    json["epoch"] = numbers.pool.epoch.value;
    json["uptime_seconds"] = absl::ToDoubleSeconds(numbers.pool.uptime);
    json["chunks"] = numbers.pool.chunk_count;
    uint64_t live = 0;
    for (size_t s = 0; s < numbers.stores_by_state.size(); ++s) {
      const auto state = static_cast<StoreState>(s);
      json["stores"][StoreStateName(state)] = numbers.stores_by_state[s];
      if (state == StoreState::kServing || state == StoreState::kSyncing) {
        live += numbers.stores_by_state[s];
      }
    }
    json["stores_live"] = live;
  }
  // A folder's name may be no UTF-8.
  health.json = json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  return health;
}

std::string Daemon::GetMetrics() {
  MasterObservation seen;
  seen.numbers = driver_.With([](MasterCore& core, MonoTime now) { return core.Numbers(now); });
  uint32_t next = 0;
  bool more = true;
  while (more) {
    more = driver_.With([&](MasterCore& core, MonoTime) {
      return core.NamespacesFrom(&next, kMetricNamespaces, &seen.other_namespaces,
                                 &seen.namespaces);
    });
  }
  seen.calls = meter_.Read();
  seen.calls_in_progress = meter_.in_progress();
  seen.clients = wire_->stats();
  seen.state_saved = state_->last_write().ok();
  seen.sessions = sessions_.stream_count();
  seen.session_handshake_failures = sessions_.handshake_failures();
  MetricsPage page(MasterMetrics());
  FillMasterMetrics(seen, &page);
  return page.ToText();
}

void Daemon::Stop() {
  stopping_.store(true, std::memory_order_release);
  meter_.Close();
  if (wire_ != nullptr) wire_->StopAccepting();
  // Removals that wait for stores are answered now: nothing else that waits is in progress for
  // long.
  driver_.Close();
  const auto grace = absl::Milliseconds(static_cast<int64_t>(options_.config.stop_grace_ms()));
  if (const uint64_t left = meter_.WaitIdle(grace); left != 0) {
    CISTERN_LOG(Warning, left, " calls in progress are cut off");
  }
  // Clients first. Then whatever still waits is ended, so that gRPC's own shutdown, which waits for
  // every call, does not.
  if (wire_ != nullptr) wire_->Stop();
  sessions_.Close();
  admin_.Close();
  segment_commands_.Close();
  driver_.Close();
  if (control_ != nullptr) control_->Stop(kStopGrace);
  // Until here operators could look on.
  if (ops_ != nullptr) ops_->Stop();
  ticker_.reset();
  if (absl::Status saved = state_->Flush(); !saved.ok()) {
    CISTERN_LOG(Error, "durable state was not saved: ", saved.ToString());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MasterDaemon>> MasterDaemon::Start(Options options) {
  CISTERN_ASSIGN_OR_RETURN(auto state, OpenPool(options.config, *options.clock));
  auto daemon = std::make_unique<Daemon>(std::move(options), std::move(state));
  CISTERN_RETURN_IF_ERROR(daemon->StartServing());
  return daemon;
}

}  // namespace cistern::master
