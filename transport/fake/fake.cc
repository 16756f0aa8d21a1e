#include "transport/fake/fake.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/fake/engine.h"
#include "transport/fake/fake_call.h"
#include "transport/io_context_access.h"

namespace cistern::transport {
namespace {

constexpr uint16_t kFirstPort = 10'000;

class FakeServer final : public WireServer {
 public:
  FakeServer(std::shared_ptr<FakeEngine> engine, std::shared_ptr<FakeServerCore> core)
      : engine_(std::move(engine)), core_(std::move(core)) {}
  ~FakeServer() override { Stop(); }
  std::string address() const override { return absl::StrCat("fake:", core_->port); }
  uint16_t port() const override { return core_->port; }
  ServerStats stats() const override {
    ServerStats stats;
    stats.connections = core_->connection_count;
    stats.accepted = core_->accepted;
    stats.refused = core_->refused;
    stats.handshake_failures = core_->handshake_failures;
    stats.protocol_errors = core_->protocol_errors;
    stats.bytes_in = core_->bytes_in;
    stats.bytes_out = core_->bytes_out;
    stats.calls = core_->calls;
    return stats;
  }
  void Stop() override {
    engine_->Execute([this] {
      const auto it = engine_->servers().find(core_->port);
      if (it == engine_->servers().end() || it->second != core_) return;
      engine_->servers().erase(it);
      std::vector<std::shared_ptr<FakeConnection>> connections;
      for (const auto& [id, connection] : core_->connections) connections.push_back(connection);
      for (const auto& connection : connections) {
        connection->Break(absl::UnavailableError("the server is stopping"));
      }
    });
  }

 private:
  const std::shared_ptr<FakeEngine> engine_;
  const std::shared_ptr<FakeServerCore> core_;
};

class FakeChannel final : public Channel {
 public:
  FakeChannel(IoContext* io, std::shared_ptr<FakeEngine> engine,
              const FakeNetwork::ChannelOptions& options)
      : engine_(std::move(engine)),
        lane_(std::make_shared<FakeLane>(IoThreadOf(io), engine_, options)) {}
  ~FakeChannel() override {
    // Let go of on the events' thread, so that no event is the last to hold it.
    engine_->Execute([lane = std::move(lane_)]() mutable {
      lane->Shutdown();
      lane.reset();
    });
  }

  void Start(CallSpec spec, CallHandler* handler, CallGroup* group) override {
    absl::Status refused;
    if (spec.deadline == MonoTime::Infinite()) {
      refused = absl::InvalidArgumentError("a call needs a deadline");
    } else if (spec.payload != nullptr && spec.payload->remaining() > kMaxDataFrameBytes) {
      refused = absl::InvalidArgumentError(
          absl::StrCat("a request carries at most ", kMaxDataFrameBytes, " bytes of payload"));
    }
    if (!refused.ok()) {
      spec.payload.reset();
      handler->OnDone(refused);
      return;
    }
    auto call = std::make_shared<FakeCall>();
    call->engine = engine_;
    call->spec = std::move(spec);
    call->handler = handler;
    call->group = GroupState::Of(*group);
    call->group->Begin(lane_);
    lane_->Start(std::move(call));
  }
  void AddPreamble(Preamble preamble) override { lane_->AddPreamble(std::move(preamble)); }
  PeerInfo peer() const override { return lane_->peer(); }
  ChannelStats stats() const override { return lane_->stats(); }
  absl::Status last_error() const override { return lane_->last_error(); }
  void AbandonAfterFork() override {}

 private:
  const std::shared_ptr<FakeEngine> engine_;
  std::shared_ptr<FakeLane> lane_;
};

}  // namespace

FakeNetwork::FakeNetwork(const Options& options) : engine_(std::make_shared<FakeEngine>(options)) {
  engine_->Start();
}

FakeNetwork::~FakeNetwork() { engine_->Stop(); }

absl::StatusOr<std::unique_ptr<WireServer>> FakeNetwork::Listen(const ServerOptions& options,
                                                                RequestHandler* handler) {
  auto core = std::make_shared<FakeServerCore>();
  core->options = options;
  core->handler = handler;
  core->port = options.port;
  absl::Status status;
  engine_->Execute([this, &core, &status] {
    auto& servers = engine_->servers();
    if (core->port == 0) {
      core->port = kFirstPort;
      while (servers.count(core->port) > 0) ++core->port;
    }
    if (!servers.emplace(core->port, core).second) {
      status = absl::UnavailableError(absl::StrCat("port ", core->port, " is in use"));
    }
  });
  if (!status.ok()) return status;
  return std::make_unique<FakeServer>(engine_, std::move(core));
}

std::unique_ptr<Channel> FakeNetwork::Connect(IoContext* io, const ChannelOptions& options) {
  return std::make_unique<FakeChannel>(io, engine_, options);
}

bool FakeNetwork::Step() { return engine_->Step(); }

void FakeNetwork::RunUntilIdle() {
  while (engine_->Step()) {
  }
}

MonoTime FakeNetwork::NextEvent() const { return engine_->NextEvent(); }

void FakeNetwork::CutConnections(uint16_t port) {
  engine_->Execute([this, port] {
    const auto it = engine_->servers().find(port);
    if (it == engine_->servers().end()) return;
    std::vector<std::shared_ptr<FakeConnection>> connections;
    for (const auto& [id, connection] : it->second->connections) connections.push_back(connection);
    for (const auto& connection : connections) {
      connection->Break(absl::UnavailableError("cut by the test"));
    }
  });
}

}  // namespace cistern::transport
