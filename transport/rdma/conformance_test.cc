#include <memory>

#include "gtest/gtest.h"
#include "transport/conformance/conformance.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern::transport {
namespace {

std::shared_ptr<rdma::Host> TestHost() {
  static const auto& host = *new absl::StatusOr<std::shared_ptr<rdma::Host>>(rdma::Host::Open({}));
  return host.ok() ? *host : nullptr;
}

class RdmaWire final : public ConformanceWire {
 public:
  absl::StatusOr<std::unique_ptr<WireServer>> Listen(const Server& options,
                                                     RequestHandler* handler) override {
    RdmaServerOptions rdma;
    rdma.host = TestHost();
    rdma.io_threads = 2;
    rdma.port = options.port;
    rdma.limits = options.limits;
    rdma.identity = options.identity;
    return ListenRdma(rdma, handler);
  }
  std::unique_ptr<Channel> Connect(IoContext* io, uint16_t port, const Client& options) override {
    RdmaChannelOptions rdma;
    rdma.host = TestHost();
    rdma.addresses = {rdma.host->Addresses().front()};
    rdma.port = port;
    rdma.identity = options.identity;
    rdma.expected_peer_id = options.expected_peer_id;
    rdma.connections = options.connections;
    rdma.separate_small_lane = options.separate_small_lane;
    return MakeRdmaChannel(io, rdma);
  }
  // Address, route and answer, each by a message of its own; on an emulated processor.
  absl::Duration time_to_be_refused() const override { return absl::Seconds(1); }
};

std::unique_ptr<ConformanceWire> MakeRdmaWire() { return std::make_unique<RdmaWire>(); }

// Without a device there is nothing to instantiate for: one test says so.
class RdmaConformance : public testing::Test {};

TEST_F(RdmaConformance, RunsOnADevice) {
  std::vector<rdma::ChosenPort> ports;
  CISTERN_TEST_PORTS_OR_SKIP(ports);
  EXPECT_NE(TestHost(), nullptr) << rdma::Host::Open({}).status();
}

std::vector<ConformanceWireFactory> Wires() {
  if (TestHost() == nullptr) return {};
  return {&MakeRdmaWire};
}

INSTANTIATE_TEST_SUITE_P(Rdma, WireConformance, testing::ValuesIn(Wires()));

}  // namespace
}  // namespace cistern::transport
