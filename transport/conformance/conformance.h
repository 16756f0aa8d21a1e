// The one suite that every wire passes. A wire's test instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, WireConformance, testing::Values(&MakeTcpWire));
#ifndef CISTERN_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
#define CISTERN_TRANSPORT_CONFORMANCE_CONFORMANCE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "transport/channel.h"
#include "transport/conformance/test_peer.h"
#include "transport/io_context.h"
#include "transport/server.h"

namespace cistern::transport {

// What the suite needs of a wire.
class ConformanceWire {
 public:
  virtual ~ConformanceWire() = default;
  struct Server {
    ServerLimits limits;
    LocalIdentity identity;
    // 0, or where a stopped server of this wire was.
    uint16_t port = 0;
  };
  virtual absl::StatusOr<std::unique_ptr<WireServer>> Listen(const Server& options,
                                                             RequestHandler* handler) = 0;
  struct Client {
    LocalIdentity identity;
    std::string expected_peer_id;
    int connections = 2;
    bool separate_small_lane = true;
  };
  virtual std::unique_ptr<Channel> Connect(IoContext* io, uint16_t port, const Client& options) = 0;
  // Whether bytes of payload that a peer does not read stay in the sender's memory.
  virtual bool has_backpressure() const { return true; }
  // How long it may take to hear that nobody listens.
  virtual absl::Duration time_to_be_refused() const { return absl::Milliseconds(100); }
};

using ConformanceWireFactory = std::unique_ptr<ConformanceWire> (*)();

class WireConformance : public testing::TestWithParam<ConformanceWireFactory> {
 protected:
  WireConformance();
  ~WireConformance() override;

  void Listen(ServerLimits limits = {}, uint16_t port = 0);
  std::unique_ptr<Channel> Connect(const ConformanceWire::Client& options);
  // With the defaults.
  Channel& channel();

  std::unique_ptr<ConformanceWire> wire_;
  std::unique_ptr<IoContext> io_;
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
  ConformanceWire::Server server_options_;
  ConformanceWire::Client client_options_;
  std::unique_ptr<Channel> channel_;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_CONFORMANCE_CONFORMANCE_H_
