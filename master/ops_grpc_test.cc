// What operators see of a master, and how it stops: real ports, real sessions.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/ops/http_testing.h"
#include "master/daemon_fixture_grpc.h"
#include "master/metrics.h"

namespace cistern::master {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class OpsTest : public DaemonTest {
 protected:
  nlohmann::json Health(int want_status) {
    const HttpReply reply = HttpGet(daemon_->http_port(), "/healthz");
    EXPECT_EQ(reply.status, want_status) << reply.body;
    return nlohmann::json::parse(reply.body);
  }
  std::string Page() { return HttpGet(daemon_->http_port(), "/metrics").body; }
  double Value(const std::string& series) {
    return MetricValue(Page(), "cistern_master_" + series);
  }
};

TEST_F(OpsTest, HealthTellsEpochAndStores) {
  MustStart();
  auto store = ConnectedStore();
  // Its snapshot, of nothing, may still be on its way.
  EXPECT_TRUE(Eventually([&] { return Health(200)["stores"]["serving"] == 1; }));
  const nlohmann::json health = Health(200);
  EXPECT_EQ(health["kind"], "master");
  EXPECT_EQ(health["status"], "serving");
  EXPECT_EQ(health["epoch"], daemon_->epoch().value);
  EXPECT_EQ(health["stores_live"], 1);
  EXPECT_EQ(health["stores"]["serving"], 1);
  EXPECT_EQ(health["grpc"], "127.0.0.1:" + std::to_string(daemon_->grpc_port()));
  store->Disconnect();
  EXPECT_TRUE(Eventually([&] { return Health(200)["stores"]["dead"] == 1; }));
  EXPECT_EQ(Health(200)["stores_live"], 0);
  EXPECT_EQ(HttpGet(daemon_->http_port(), "/livez").status, 200);
  EXPECT_EQ(HttpGet(daemon_->http_port(), "/nothing").status, 404);
}

TEST_F(OpsTest, EveryMetricOfTheTableIsExportedAndNoOther) {
  MustStart();
  std::set<std::string> table;
  for (const MetricInfo& info : MasterMetrics()) table.insert(info.name);
  EXPECT_EQ(MetricNames(Page()), table);
}

TEST_F(OpsTest, CountersSayWhatHappened) {
  MustStart();
  auto client = BoundClient();
  auto store = ConnectedStore();
  const auto ids = Ids(0, 10);
  store->Commit(0, {ids.begin(), ids.begin() + 6}, kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(ids) == 6; }));
  ASSERT_TRUE(client->Lookup(ids).ok());
  ASSERT_TRUE(client->Place(ids, 'p').ok());
  ASSERT_FALSE(client->Call(transport::FrameType::kLookup, "no protobuf").ok());
  EXPECT_EQ(Value("lookups_total"), 1);
  EXPECT_EQ(Value("lookup_keys_total{result=\"hit\"}"), 6);
  EXPECT_EQ(Value("lookup_keys_total{result=\"absent\"}"), 4);
  EXPECT_EQ(Value("place_chunks_total{result=\"present\"}"), 6);
  EXPECT_EQ(Value("place_chunks_total{result=\"placed\"}"), 4);
  EXPECT_EQ(Value("in_progress_puts"), 4);
  EXPECT_EQ(Value("placed_bytes"), 4 * kChunk);
  EXPECT_EQ(Value("chunks"), 6);
  EXPECT_EQ(Value("used_bytes{tier=\"dram\"}"), 6 * kChunk);
  EXPECT_EQ(Value("capacity_bytes{tier=\"dram\"}"), 1 << 30);
  EXPECT_EQ(Value("lease_limit_bytes"), 1 << 29);  // half, by default
  EXPECT_TRUE(Eventually([&] { return Value("stores{state=\"serving\"}") == 1; }));
  EXPECT_EQ(Value("sessions"), 1);
  EXPECT_EQ(Value("sessions_opened_total"), 1);
  EXPECT_EQ(Value("snapshots_total{event=\"completed\"}"), 1);
  EXPECT_EQ(Value("records_applied_total"), 6);
  EXPECT_EQ(Value("namespace_put_chunks_total{namespace=\"ns\"}"), 6);
  EXPECT_EQ(Value("namespace_put_bytes_total{namespace=\"ns\"}"), 6 * kChunk);
  EXPECT_EQ(Value("namespace_lookup_keys_total{namespace=\"ns\",result=\"hit\"}"), 6);
  EXPECT_EQ(Value("namespace_lookup_keys_total{namespace=\"ns\",result=\"miss\"}"), 4);
  EXPECT_EQ(Value("call_seconds_count{call=\"lookup\",code=\"OK\"}"), 1);
  EXPECT_EQ(Value("call_seconds_count{call=\"lookup\",code=\"INVALID_ARGUMENT\"}"), 1);
  EXPECT_EQ(Value("call_seconds_count{call=\"place\",code=\"OK\"}"), 1);
  EXPECT_GE(Value("connections"), 1);
  EXPECT_GT(Value("wire_bytes_total{wire=\"tcp\",direction=\"in\"}"), 0);
}

TEST_F(OpsTest, RefusedChunksHaveAReason) {
  MustStart();
  auto client = BoundClient();
  ASSERT_TRUE(client->Place(Ids(0, 3), 'p').ok());
  EXPECT_EQ(Value("place_refused_total{reason=\"no_store\"}"), 3);
  EXPECT_EQ(Value("place_refused_total{reason=\"no_room\"}"), 0);
}

TEST_F(OpsTest, PeersThatFailTheHandshakeAreCounted) {
  MustStart();
  for (const uint16_t port : {daemon_->data_port(), daemon_->grpc_port()}) {
    const int fd = DialLoopback(port);
    (void)send(fd, "garbage of thirty-two bytes or more", 35, MSG_NOSIGNAL);
    close(fd);
  }
  EXPECT_TRUE(Eventually([&] { return Value("handshake_failures_total") == 1; }));
  // A store with another pool's id.
  ScriptedStore::Options options = StoreOptions();
  options.pool_id = PoolId::FromBytes("another pool's  ");
  ScriptedStore store(options);
  EXPECT_FALSE(store.Connect().ok());
  store.Disconnect();
  EXPECT_TRUE(Eventually([&] { return Value("session_handshake_failures_total") == 1; }));
}

TEST_F(OpsTest, NamespacesBeyondTheFirstHundredAreSummedUp) {
  MustStart();
  auto client = BoundClient();
  for (int i = 1; i < 150; ++i) {
    ASSERT_TRUE(client->Open("n" + std::to_string(i)).ok());
  }
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("namespace_chunks{namespace=\"ns\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("namespace_chunks{namespace=\"n99\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("\"n100\"")));
  EXPECT_THAT(page, HasSubstr("namespace_chunks{namespace=\"(other)\"} 0\n"));
  EXPECT_EQ(MetricValue(page, "cistern_master_namespaces"), 150);
}

TEST_F(OpsTest, GarbageOnTheHttpPortDoesNoHarm) {
  MustStart();
  std::vector<int> fds;
  for (int i = 0; i < 100; ++i) {
    fds.push_back(DialLoopback(daemon_->http_port()));
    ASSERT_GE(fds.back(), 0);
    (void)send(fds.back(), "GET /metr", static_cast<size_t>(i % 10), MSG_NOSIGNAL);
  }
  Health(200);
  for (const int fd : fds) close(fd);
}

TEST_F(OpsTest, HttpPortCanBeLeftOut) {
  config::MasterConfig config = Config();
  config.set_http_enabled(false);
  ASSERT_TRUE(StartDaemon(config).ok());
  EXPECT_EQ(daemon_->http_port(), 0);
  EXPECT_EQ(nlohmann::json::parse(daemon_->EndpointsJson())["http"], "");
}

TEST_F(OpsTest, HttpPortInUseIsSaidSo) {
  MustStart();
  config::MasterConfig config = Config();
  config.set_data_dir(dir_ + "/other");
  config.set_http_port(daemon_->http_port());
  MasterDaemon::Options options;
  options.config = config;
  const absl::Status status = MasterDaemon::Start(std::move(options)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("http_port"));
}

TEST_F(OpsTest, RemovalInProgressIsAnsweredWhenTheMasterStops) {
  MustStart();
  auto client = BoundClient();
  ScriptedStore::Options options = StoreOptions();
  options.obeys = false;
  ScriptedStore store(options);
  ASSERT_TRUE(store.Connect().ok());
  store.Commit(0, Ids(0, 1), kChunk);
  ASSERT_TRUE(Eventually([&] { return client->Present(Ids(0, 1)) == 1; }));
  absl::StatusOr<wire::RemoveReply> reply;
  std::thread remover([&] { reply = client->Remove(Ids(0, 1), false, 60'000); });
  ASSERT_TRUE(Eventually([&] { return store.evict_commands() > 0; }));
  EXPECT_EQ(Value("calls_in_progress"), 1);
  daemon_->Stop();
  remover.join();
  // The store never reported it; the answer came all the same, and says so.
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->removed_count(), 0u);
}

TEST_F(OpsTest, StoppedMasterTakesNoConnections) {
  MustStart();
  const uint16_t data = daemon_->data_port();
  const uint16_t http = daemon_->http_port();
  daemon_->Stop();
  daemon_->Stop();
  EXPECT_EQ(DialLoopback(data), -1);
  EXPECT_EQ(DialLoopback(http), -1);
}

}  // namespace
}  // namespace cistern::master
