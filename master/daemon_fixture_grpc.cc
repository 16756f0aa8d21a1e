#include "master/daemon_fixture_grpc.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/columns.h"
#include "base/config.h"
#include "base/key_hash.h"
#include "transport/tcp/tcp.h"

namespace cistern::master {

using transport::FrameType;

namespace {

class OneAnswer final : public transport::CallHandler {
 public:
  absl::Status OnFrame(const Answer& answer, transport::PayloadSink**,
                       std::unique_ptr<transport::PayloadSource>*) override {
    meta = std::string(answer.meta);
    return absl::OkStatus();
  }
  void OnDone(absl::Status s) override { status = std::move(s); }

  std::string meta;
  absl::Status status = absl::InternalError("not done");
};

std::string Column(const std::vector<KeyId>& ids) {
  std::string out;
  for (const KeyId& id : ids) out.append(id.view());
  return out;
}

}  // namespace

FrameClient::FrameClient(uint16_t data_port, std::string token) {
  auto io = transport::IoContext::Create({});
  EXPECT_TRUE(io.ok()) << io.status();
  io_ = *std::move(io);
  transport::TcpChannelOptions options;
  options.host = "127.0.0.1";
  options.port = data_port;
  options.identity.kind = wire::PEER_CLIENT;
  options.identity.token = std::move(token);
  options.identity.incarnation = 7;
  options.connections = 1;
  options.separate_small_lane = false;
  channel_ = transport::MakeTcpChannel(io_.get(), options);
}

absl::StatusOr<std::string> FrameClient::Call(FrameType type, std::string meta,
                                              absl::Duration timeout) {
  OneAnswer answer;
  transport::CallGroup group;
  transport::CallSpec spec;
  spec.type = type;
  spec.meta = std::move(meta);
  spec.deadline = Clock::Real().Mono() + timeout;
  channel_->Start(std::move(spec), &answer, &group);
  io_->Wait(group);
  if (!answer.status.ok()) return answer.status;
  return answer.meta;
}

absl::StatusOr<wire::OpenNamespaceReply> FrameClient::Open(const std::string& name,
                                                           const std::string& fingerprint) {
  wire::OpenNamespaceRequest request;
  request.set_name(name);
  request.set_fingerprint(fingerprint);
  return Ask<wire::OpenNamespaceReply>(FrameType::kOpenNamespace, request);
}

void FrameClient::Bind(const std::string& id) {
  wire::BindNamespaceRequest request;
  request.set_id(id);
  request.set_deadline_ms(20'000);
  channel_->AddPreamble({FrameType::kMasterBindNamespace, request.SerializeAsString(),
                         [](uint64_t, FrameType, std::string_view) { return absl::OkStatus(); }});
}

absl::StatusOr<wire::LookupReply> FrameClient::Lookup(const std::vector<KeyId>& ids) {
  wire::LookupRequest request;
  request.set_map_version(1);
  request.set_ns_ref(1);
  request.set_ids(Column(ids));
  request.set_lease_ms(100);
  return Ask<wire::LookupReply>(FrameType::kLookup, request);
}

absl::StatusOr<wire::PlaceReply> FrameClient::Place(const std::vector<KeyId>& ids, char operation) {
  wire::PlaceRequest request;
  request.set_map_version(1);
  request.set_ns_ref(1);
  request.set_ids(Column(ids));
  ColumnWriter<uint32_t>(request.mutable_lengths(), 1).Set(0, kChunk);
  request.set_operation_id(std::string(16, operation));
  return Ask<wire::PlaceReply>(FrameType::kPlace, request);
}

absl::StatusOr<wire::RemoveReply> FrameClient::Remove(const std::vector<KeyId>& ids, bool force,
                                                      uint32_t deadline_ms) {
  wire::RemoveRequest request;
  request.set_map_version(1);
  request.set_ns_ref(1);
  request.set_ids(Column(ids));
  request.set_force(force);
  request.set_deadline_ms(deadline_ms);
  return Ask<wire::RemoveReply>(FrameType::kRemove, request);
}

int FrameClient::Present(const std::vector<KeyId>& ids) {
  wire::ExistsRequest request;
  request.set_map_version(1);
  request.set_ns_ref(1);
  request.set_ids(Column(ids));
  const auto reply = Ask<wire::ExistsReply>(FrameType::kExists, request);
  if (!reply.ok()) return -1;
  int present = 0;
  for (size_t i = 0; i < ids.size(); ++i) present += BitmapGet(reply->present(), i);
  return present;
}

DaemonTest::DaemonTest() : dir_(::testing::TempDir() + "master_XXXXXX") {
  EXPECT_NE(mkdtemp(dir_.data()), nullptr);
}

DaemonTest::~DaemonTest() {
  daemon_ = nullptr;
  std::filesystem::remove_all(dir_);
}

config::MasterConfig DaemonTest::Config() const {
  config::MasterConfig config;
  const auto loaded = LoadConfig(
      "", "test",
      {{"data_dir", dir_ + "/data"}, {"data_port", "0"}, {"grpc_port", "0"}, {"http_port", "0"}},
      &config);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return config;
}

absl::Status DaemonTest::StartDaemon(const config::MasterConfig& config, const std::string& token) {
  MasterDaemon::Options options;
  options.config = config;
  options.token = token;
  options.on_fatal = [this](const absl::Status& why) { fatal_ = why; };
  auto daemon = MasterDaemon::Start(std::move(options));
  if (!daemon.ok()) return daemon.status();
  daemon_ = *std::move(daemon);
  return absl::OkStatus();
}

std::unique_ptr<FrameClient> DaemonTest::Client(const std::string& token) {
  return std::make_unique<FrameClient>(daemon_->data_port(), token);
}

std::unique_ptr<FrameClient> DaemonTest::BoundClient() {
  auto client = Client();
  const auto opened = client->Open("ns");
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (opened.ok()) client->Bind(opened->info().id());
  return client;
}

ScriptedStore::Options DaemonTest::StoreOptions(char which) const {
  ScriptedStore::Options options;
  options.grpc_port = daemon_->grpc_port();
  options.pool_id = daemon_->pool_id();
  options.store_id = StoreId::FromBytes(std::string(16, which).data());
  options.name = std::string("store-") + which;
  options.namespaces = {Namespace()};
  return options;
}

std::unique_ptr<ScriptedStore> DaemonTest::ConnectedStore(char which, uint64_t capacity_bytes) {
  ScriptedStore::Options options = StoreOptions(which);
  options.capacity_bytes = capacity_bytes;
  auto store = std::make_unique<ScriptedStore>(options);
  const absl::Status status = store->Connect();
  EXPECT_TRUE(status.ok()) << status;
  return store;
}

std::vector<KeyId> DaemonTest::Ids(int first, int count) {
  const KeyHasher hasher(DeriveNamespaceId("", "ns", "fp"));
  std::vector<KeyId> ids;
  for (int i = first; i < first + count; ++i) ids.push_back(hasher.Hash(std::to_string(i)));
  return ids;
}

wire::NamespaceInfo DaemonTest::Namespace() {
  wire::NamespaceInfo info;
  info.set_id(std::string(DeriveNamespaceId("", "ns", "fp").view()));
  info.set_name("ns");
  info.set_fingerprint("fp");
  return info;
}

}  // namespace cistern::master
