// What operators see of a store, and how it stops: real ports, a real session.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "base/config.h"
#include "base/eventually.h"
#include "base/fault.h"
#include "base/key_hash.h"
#include "base/ops/http_testing.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/daemon.h"
#include "store/metrics.h"
#include "store/testing/scripted_master.h"
#include "store/testing/test_peer.h"
#include "transport/stream/raw_peer.h"

namespace cistern::store {
namespace {

using testing::HasSubstr;
using transport::FrameType;
using transport::RawPeer;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class StoreOpsTest : public testing::Test {
 protected:
  StoreOpsTest()
      : master_(std::make_unique<ScriptedMaster>(PoolId::FromBytes("pool-of-the-test"), kToken)) {
    WriteFile(dir_ / "token", kToken, 0600);
  }

  void StartStore(const std::vector<std::pair<std::string, std::string>>& set = {}) {
    std::vector<std::pair<std::string, std::string>> all = {{"data_port", "0"},
                                                            {"http_port", "0"},
                                                            {"data_dir", dir_ / "data"},
                                                            {"segment_dir", dir_ / "segments"},
                                                            {"master_address", master_->address()},
                                                            {"pool_token_file", dir_ / "token"},
                                                            {"expected_chunk", "4KiB"},
                                                            {"segment[0].size", "8MiB"}};
    all.insert(all.end(), set.begin(), set.end());
    config::StoreConfig config;
    ASSERT_OK(LoadConfig("", "test", all, &config).status());
    auto started = StoreDaemon::Start(config, Clock::Real(), [] { return false; });
    ASSERT_OK(started.status());
    store_ = *std::move(started);
    ASSERT_TRUE(master_->WaitFor([&] { return master_->sessions() > 0; }));
    peer_ = std::make_unique<TestPeer>(store_->data_port(), kToken);
    ASSERT_OK_AND_ASSIGN(ns_, peer_->Bind("model", "fp"));
  }
  static TestChunk Chunk(uint8_t n, size_t bytes) {
    TestChunk chunk;
    chunk.id.bytes[0] = n;
    chunk.bytes = PatternBytes(n, bytes);
    return chunk;
  }
  nlohmann::json Health(int want_status) {
    const HttpReply reply = HttpGet(store_->http_port(), "/healthz");
    EXPECT_EQ(reply.status, want_status) << reply.body;
    return nlohmann::json::parse(reply.body);
  }
  // Until /healthz answers with this status; the page is then in `health_`.
  bool AwaitHealth(int status) {
    return Eventually([&] {
      const HttpReply reply = HttpGet(store_->http_port(), "/healthz");
      health_ = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
      return reply.status == status;
    });
  }
  std::string Page() { return HttpGet(store_->http_port(), "/metrics").body; }
  double Value(const std::string& series) { return MetricValue(Page(), "cistern_store_" + series); }

  // A put of one chunk that has sent all but the last byte of its payload.
  struct HalfPut {
    std::unique_ptr<RawPeer> peer;
    std::string rest;
  };
  HalfPut BeginPut(const TestChunk& chunk) {
    HalfPut half;
    half.peer = std::make_unique<RawPeer>(store_->data_port());
    transport::LocalIdentity identity;
    identity.token = kToken;
    EXPECT_TRUE(half.peer->Handshake(identity));
    wire::BindNamespace bind;
    bind.set_name("model");
    bind.set_fingerprint("fp");
    bind.set_id(std::string(DeriveNamespaceId("", "model", "fp").view()));
    bind.set_deadline_ms(20'000);
    half.peer->SendFrame(FrameType::kBindNamespace, 1, bind.SerializeAsString());
    EXPECT_TRUE(half.peer->Receive().has_value());
    const std::string frame = transport::RawFrame(
        FrameType::kPut, 2, peer_->PutMeta(1, {chunk}, true).SerializeAsString(),
        TestPeer::Stream(chunk));
    EXPECT_TRUE(half.peer->Send(frame.substr(0, frame.size() - 1)));
    half.rest = frame.substr(frame.size() - 1);
    return half;
  }
  bool Awaits(double value, const std::string& series) {
    return Eventually([&] { return Value(series) == value; });
  }

  TempDir dir_;
  std::unique_ptr<ScriptedMaster> master_;
  std::unique_ptr<StoreDaemon> store_;
  std::unique_ptr<TestPeer> peer_;
  uint32_t ns_ = 0;
  nlohmann::json health_;
};

TEST_F(StoreOpsTest, HealthFollowsTheSession) {
  StartStore();
  ASSERT_TRUE(AwaitHealth(200));
  EXPECT_EQ(health_["kind"], "store");
  EXPECT_EQ(health_["status"], "serving");
  EXPECT_EQ(health_["segments"], 1);
  EXPECT_EQ(health_["epoch"], 1);
  EXPECT_EQ(health_["master"], master_->address());
  // From now on it answers with an epoch that the store has seen the end of.
  master_->SetEpoch(0);
  master_->CutSession();
  ASSERT_TRUE(AwaitHealth(503));
  EXPECT_EQ(health_["status"], "no_session");
  EXPECT_EQ(health_["in_session"], false);
  // A restart would not help: it lives.
  EXPECT_EQ(HttpGet(store_->http_port(), "/livez").status, 200);
}

TEST_F(StoreOpsTest, EveryMetricOfTheTableIsExportedAndNoOther) {
  StartStore();
  std::set<std::string> table;
  for (const MetricInfo& info : StoreMetrics()) table.insert(info.name);
  EXPECT_EQ(MetricNames(Page()), table);
}

TEST_F(StoreOpsTest, CountersSayWhatHappened) {
  StartStore();
  const std::vector<TestChunk> chunks = {Chunk(1, 4096), Chunk(2, 70'000)};
  peer_->Put(ns_, chunks);
  peer_->Put(ns_, {chunks[0]}, /*in_line=*/false);
  peer_->Put(ns_, {Chunk(3, 8192)}, /*in_line=*/true, /*wrong_digest=*/true);
  peer_->Get(ns_, {chunks[0], chunks[1], Chunk(9, 4096)});
  ASSERT_TRUE(Awaits(2, "records_acked_total"));
  const std::string page = Page();
  const auto value = [&](const std::string& s) { return MetricValue(page, "cistern_store_" + s); };
  EXPECT_EQ(value("put_chunks_total{result=\"committed\"}"), 2);
  EXPECT_EQ(value("put_chunks_total{result=\"present\"}"), 1);
  EXPECT_EQ(value("put_chunks_total{result=\"corrupt\"}"), 1);
  EXPECT_EQ(value("put_chunks_total{result=\"refused\"}"), 0);
  EXPECT_EQ(value("put_bytes_total"), 74'096);
  EXPECT_EQ(value("get_chunks_total{result=\"hit\"}"), 2);
  EXPECT_EQ(value("get_chunks_total{result=\"miss\"}"), 1);
  EXPECT_EQ(value("get_bytes_total"), 74'096 + 16);
  EXPECT_EQ(value("chunks{tier=\"dram\"}"), 2);
  EXPECT_EQ(value("payload_bytes{tier=\"dram\"}"), 74'096);
  EXPECT_EQ(value("used_bytes{tier=\"dram\"}"), 4096 + 73'728);  // rounded up to 4 KiB
  EXPECT_EQ(value("segment_bytes{segment=\"0\",tier=\"dram\"}"), 8 << 20);
  EXPECT_EQ(value("segment_headers{segment=\"0\",tier=\"dram\"}"), 2048);
  EXPECT_EQ(value("segment_headers_used{segment=\"0\",tier=\"dram\"}"), 2);
  EXPECT_EQ(value("segment_allocatable_bytes{segment=\"0\",tier=\"dram\"}") -
                value("segment_free_bytes{segment=\"0\",tier=\"dram\"}"),
            4096 + 73'728);
  EXPECT_EQ(value("namespace_chunks{namespace=\"model\"}"), 2);
  EXPECT_EQ(value("namespace_payload_bytes{namespace=\"model\"}"), 74'096);
  EXPECT_EQ(value("in_session"), 1);
  EXPECT_EQ(value("epoch"), 1);
  EXPECT_EQ(value("sessions_total"), 1);
  EXPECT_EQ(value("snapshots_total{event=\"completed\"}"), 1);
  EXPECT_EQ(value("records_total"), 2);
  EXPECT_EQ(value("records_backlog"), 0);
  EXPECT_EQ(value("call_seconds_count{call=\"put\",code=\"OK\"}"), 3);
  EXPECT_EQ(value("call_seconds_count{call=\"get\",code=\"OK\"}"), 1);
  EXPECT_GE(value("wire_bytes_total{wire=\"tcp\",direction=\"out\"}"), 74'096);
  EXPECT_EQ(value("inflight_bytes"), 0);
}

TEST_F(StoreOpsTest, RefusedPutIsCountedOnceWithItsReason) {
  StartStore();
  TestChunk too_large = Chunk(1, 9 << 20);
  peer_->Put(ns_, {too_large}, /*in_line=*/false);
  EXPECT_EQ(Value("put_refused_total{reason=\"too_large\"}"), 1);
  // Fills the segment with what was read just now, so that nothing may go.
  for (uint8_t n = 2; n < 9; ++n) {
    const TestChunk chunk = Chunk(n, 1 << 20);
    peer_->Put(ns_, {chunk}, /*in_line=*/false);
    peer_->Get(ns_, {chunk});
  }
  const wire::PutDone done = peer_->Put(ns_, {Chunk(50, 2 << 20)}, /*in_line=*/false);
  ASSERT_EQ(done.statuses(), std::string(1, static_cast<char>(wire::CHUNK_RESOURCE_EXHAUSTED)));
  // It was tried again and again for a quarter of a second.
  EXPECT_EQ(Value("put_refused_total{reason=\"no_room\"}"), 1);
  EXPECT_EQ(Value("put_chunks_total{result=\"refused\"}"), 2);
}

TEST_F(StoreOpsTest, PutInProgressEndsBeforeTheStoreStops) {
  StartStore({{"stop_grace", "60s"}});
  const TestChunk chunk = Chunk(7, 100'000);
  HalfPut half = BeginPut(chunk);
  ASSERT_TRUE(Awaits(1, "calls_in_progress"));
  ASSERT_TRUE(AwaitHealth(200));
  const uint16_t port = store_->data_port();
  const uint16_t http = store_->http_port();
  std::thread stopper([&] { store_->Stop(); });
  // It says that it stops, takes no connection and no request, and still has the put.
  ASSERT_TRUE(AwaitHealth(503));
  EXPECT_EQ(health_["status"], "stopping");
  EXPECT_TRUE(Eventually([&] {
    const int fd = DialLoopback(port);
    if (fd >= 0) close(fd);
    return fd < 0;
  }));
  EXPECT_FALSE(peer_->Get(ns_, {chunk}).status.ok());
  EXPECT_EQ(Value("calls_in_progress"), 1);
  EXPECT_TRUE(half.peer->Send(half.rest));
  const auto done = half.peer->Receive();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->header.type, FrameType::kPutDone);
  wire::PutDone reply;
  ASSERT_TRUE(reply.ParseFromString(done->meta));
  EXPECT_EQ(reply.statuses(), std::string(1, '\0'));
  stopper.join();
  EXPECT_EQ(DialLoopback(http), -1);
  // What was acknowledged is there after a restart.
  peer_.reset();
  store_.reset();
  StartStore();
  EXPECT_EQ(peer_->Get(ns_, {chunk}).payload.substr(8), chunk.bytes);
}

TEST_F(StoreOpsTest, PutThatNeverEndsIsCutOffAfterTheGrace) {
  StartStore({{"stop_grace", "50ms"}});
  HalfPut half = BeginPut(Chunk(7, 100'000));
  ASSERT_TRUE(Awaits(1, "calls_in_progress"));
  store_->Stop();
  EXPECT_TRUE(half.peer->WaitClosed());
}

TEST_F(StoreOpsTest, HurryDoesNotWaitForThePut) {
  StartStore({{"stop_grace", "60s"}});
  HalfPut half = BeginPut(Chunk(7, 100'000));
  ASSERT_TRUE(Awaits(1, "calls_in_progress"));
  ASSERT_TRUE(AwaitHealth(200));
  std::thread stopper([&] { store_->Stop(); });
  ASSERT_TRUE(AwaitHealth(503));
  store_->Hurry();
  stopper.join();
  EXPECT_TRUE(half.peer->WaitClosed());
}

TEST_F(StoreOpsTest, ThreadThatHangsShows) {
  StartStore();
  ASSERT_TRUE(AwaitHealth(200));
  peer_->Put(ns_, {Chunk(1, 4096)});
  ASSERT_OK(ArmFault("store.get.acquired:delay=10s"));
  std::thread getter([&] { peer_->Get(ns_, {Chunk(1, 4096)}); });
  EXPECT_TRUE(Eventually([&] { return HttpGet(store_->http_port(), "/livez").status == 503; }));
  const HttpReply health = HttpGet(store_->http_port(), "/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("\"wedged\""));
  getter.join();
  DisarmFaults();
  EXPECT_TRUE(Eventually([&] { return HttpGet(store_->http_port(), "/livez").status == 200; }));
}

// What readers do not check the store checks once after its start, on a thread for that.
TEST_F(StoreOpsTest, VerifyingThreadThatHangsShows) {
  wire::NamespaceOptions unchecked;
  unchecked.set_verify(wire::VERIFY_OFF);
  StartStore();
  ASSERT_OK_AND_ASSIGN(uint32_t ns, peer_->Bind("unchecked", "fp", unchecked));
  peer_->Put(ns, {Chunk(1, 4096)});
  store_ = nullptr;
  StartStore();
  ASSERT_OK_AND_ASSIGN(ns, peer_->Bind("unchecked", "fp", unchecked));
  ASSERT_TRUE(AwaitHealth(200));
  ASSERT_OK(ArmFault("store.get.verifying:delay=20s"));
  std::thread getter([&, ns] { peer_->Get(ns, {Chunk(1, 4096)}); });
  EXPECT_TRUE(AwaitHealth(503));
  EXPECT_EQ(health_["status"], "wedged");
  getter.join();
  DisarmFaults();
  EXPECT_TRUE(AwaitHealth(200));
}

TEST_F(StoreOpsTest, HttpPortCanBeLeftOut) {
  StartStore({{"http_enabled", "false"}});
  EXPECT_EQ(store_->http_port(), 0);
  EXPECT_EQ(nlohmann::json::parse(store_->endpoints_json())["http"], "");
}

TEST_F(StoreOpsTest, StoreThatWaitsForItsMasterSaysThatItStarts) {
  config::StoreConfig config;
  ASSERT_OK(LoadConfig("", "test",
                       {{"data_port", "0"},
                        {"http_port", "0"},
                        {"data_dir", dir_ / "new"},
                        {"segment_dir", dir_ / "new-segments"},
                        {"master_address", "127.0.0.1:1"},
                        {"segment[0].size", "8MiB"}},
                       &config)
                .status());
  // Nobody tells the port before the start is over.
  const uint16_t probe = FreePort();
  config.set_http_port(probe);
  std::atomic<bool> stop{false};
  absl::Status status;
  std::thread starter([&] {
    status = StoreDaemon::Start(config, Clock::Real(), [&] { return stop.load(); }).status();
  });
  HttpReply reply;
  EXPECT_TRUE(Eventually([&] {
    reply = HttpGet(probe, "/healthz");
    return reply.status != 0;
  }));
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("starting"));
  EXPECT_EQ(HttpGet(probe, "/livez").status, 200);
  EXPECT_EQ(HttpGet(probe, "/metrics").status, 503);
  stop = true;
  starter.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace cistern::store
