#include <memory>

#include "gtest/gtest.h"
#include "transport/conformance/conformance.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

class TcpWire final : public ConformanceWire {
 public:
  absl::StatusOr<std::unique_ptr<WireServer>> Listen(const Server& options,
                                                     RequestHandler* handler) override {
    TcpServerOptions tcp;
    tcp.port = options.port;
    tcp.limits = options.limits;
    tcp.identity = options.identity;
    return ListenTcp(tcp, handler);
  }
  std::unique_ptr<Channel> Connect(IoContext* io, uint16_t port, const Client& options) override {
    TcpChannelOptions tcp;
    tcp.host = "127.0.0.1";
    tcp.port = port;
    tcp.identity = options.identity;
    tcp.expected_peer_id = options.expected_peer_id;
    tcp.connections = options.connections;
    tcp.separate_small_lane = options.separate_small_lane;
    return MakeTcpChannel(io, tcp);
  }
};

std::unique_ptr<ConformanceWire> MakeTcpWire() { return std::make_unique<TcpWire>(); }

INSTANTIATE_TEST_SUITE_P(Tcp, WireConformance, testing::Values(&MakeTcpWire));

}  // namespace
}  // namespace cistern::transport
