// Several ports: connections spread over them, and leave one that is down.

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/eventually.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/io_context.h"
#include "transport/rdma/extent_store_testing.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport::rdma {
namespace {

// In the VM with a cable: one port, and the far end of the cable whose near end is veth1's.
constexpr char kPlain[] = "10.77.0.1";
constexpr char kCable[] = "10.78.0.2";
constexpr char kRestoreRoute[] =
    "ip link set veth1 up && ip route replace 10.78.0.0/24 dev veth1 src 10.78.0.1 table 101";

class SeveralDevicesTest : public testing::Test {
 protected:
  void Start() {
    std::vector<ChosenPort> ports;
    CISTERN_TEST_PORTS_OR_SKIP(ports);
    if (!InRdmaVm() || ports.size() < 3) GTEST_SKIP() << "skipped: needs the cable of the VM";
    ASSERT_OK_AND_ASSIGN(host_, Host::Open({}));
    identity_.token = "a token of thirty-two bytes or so";
    identity_.peer_id = "store-id-16bytes";
    RdmaServerOptions server;
    server.host = host_;
    server.listen_addresses = {kPlain, kCable};
    server.identity = identity_;
    ASSERT_OK_AND_ASSIGN(server_, ListenRdma(server, &store_));
    ASSERT_OK_AND_ASSIGN(client_host_, Host::Open({}));
    ASSERT_OK_AND_ASSIGN(io_, IoContext::Create({}));
  }
  void TearDown() override {
    channel_.reset();
    io_.reset();
    if (server_ != nullptr) server_->Stop();
  }
  void Connect(std::vector<std::string> addresses, int connections) {
    RdmaChannelOptions options;
    options.host = client_host_;
    options.addresses = std::move(addresses);
    options.port = server_->port();
    options.identity.token = identity_.token;
    options.connections = connections;
    options.separate_small_lane = false;
    options.connect_timeout = absl::Seconds(5);
    channel_ = MakeRdmaChannel(io_.get(), options);
  }
  absl::Status Echo() {
    return RoundTrip(*io_, *channel_, "echo x", absl::Seconds(20), /*small=*/false).status();
  }
  uint32_t QueuePairs(const std::string& device) const {
    for (const auto& one : client_host_->devices()) {
      if (one->name == device) return one->queue_pairs.load();
    }
    return 0;
  }

  TestMemory extent_{4096};
  ExtentStore store_{&extent_};
  std::shared_ptr<Host> host_;
  std::shared_ptr<Host> client_host_;
  LocalIdentity identity_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<IoContext> io_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(SeveralDevicesTest, ConnectionsSpreadOverThem) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  Connect({kPlain, kCable}, /*connections=*/2);
  // Two at once, so that each connection has one.
  TestCall calls[2];
  CallGroup group;
  for (TestCall& call : calls) {
    CallSpec spec = MakeSpec(FrameType::kPing, "echo x", absl::Seconds(20));
    spec.expected_bytes = 1 << 20;
    channel_->Start(std::move(spec), &call, &group);
  }
  io_->Wait(group);
  for (const TestCall& call : calls) EXPECT_OK(*call.status);
  EXPECT_EQ(QueuePairs("rxe0"), 1u);
  EXPECT_EQ(QueuePairs("rxe1"), 1u);
}

// (Soft-RoCE tells nobody that a cable was cut under a connection: the deadlines of calls do. And
// without the cable its far end is an address of this host, which leads to it by its own device.)
TEST_F(SeveralDevicesTest, OneWhoseLinkIsDownIsPassedOverAndUsedAgain) {
  Start();
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(std::system("ip link set veth1 down"), 0);
  Connect({kCable, kPlain}, /*connections=*/1);
  EXPECT_TRUE(Eventually([&] { return Echo().ok(); }));
  EXPECT_EQ(QueuePairs("rxe1"), 0u);
  ASSERT_EQ(std::system(kRestoreRoute), 0);
  Connect({kCable}, /*connections=*/1);
  EXPECT_TRUE(Eventually([&] { return Echo().ok(); }));
  EXPECT_EQ(QueuePairs("rxe1"), 1u);
}

}  // namespace
}  // namespace cistern::transport::rdma
