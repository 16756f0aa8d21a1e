#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/conformance.h"
#include "transport/shm/shm.h"

namespace cistern::transport {
namespace {

// The suite names servers by port numbers: here the names of sockets in one folder.
class NumberedServer final : public WireServer {
 public:
  NumberedServer(std::unique_ptr<WireServer> server, uint16_t port)
      : server_(std::move(server)), port_(port) {}
  std::string address() const override { return server_->address(); }
  uint16_t port() const override { return port_; }
  ServerStats stats() const override { return server_->stats(); }
  void Stop() override { server_->Stop(); }

 private:
  const std::unique_ptr<WireServer> server_;
  const uint16_t port_;
};

class ShmWire : public ConformanceWire {
 public:
  absl::StatusOr<std::unique_ptr<WireServer>> Listen(const Server& options,
                                                     RequestHandler* handler) override {
    const uint16_t port = options.port != 0 ? options.port : next_port_++;
    ShmServerOptions shm;
    shm.socket_path = PathOf(port);
    shm.limits = options.limits;
    shm.identity = options.identity;
    shm.ring_bytes = ring_bytes_;
    shm.max_mapped_bytes = max_mapped_bytes_;
    auto server = ListenShm(shm, handler);
    if (!server.ok()) return server.status();
    return std::make_unique<NumberedServer>(*std::move(server), port);
  }
  std::unique_ptr<Channel> Connect(IoContext* io, uint16_t port, const Client& options) override {
    ShmChannelOptions shm;
    shm.socket_path = PathOf(port);
    shm.identity = options.identity;
    shm.expected_peer_id = options.expected_peer_id;
    shm.connections = options.connections;
    shm.separate_small_lane = options.separate_small_lane;
    return MakeShmChannel(io, shm);
  }

 protected:
  uint64_t ring_bytes_ = 1 << 20;
  uint64_t max_mapped_bytes_ = uint64_t{1} << 30;

 private:
  std::string PathOf(uint16_t port) const { return absl::StrCat(folder_.path(), "/store:", port); }

  const TempDir folder_;
  uint16_t next_port_ = 1000;
};

// The smallest rings that there may be: everything waits for room.
class TightShmWire final : public ShmWire {
 public:
  TightShmWire() { ring_bytes_ = 256 << 10; }
};

// The store has no memory left for rings: all of it is in line.
class RinglessShmWire final : public ShmWire {
 public:
  RinglessShmWire() { max_mapped_bytes_ = 0; }
};

std::unique_ptr<ConformanceWire> MakeShmWire() { return std::make_unique<ShmWire>(); }
std::unique_ptr<ConformanceWire> MakeTightShmWire() { return std::make_unique<TightShmWire>(); }
std::unique_ptr<ConformanceWire> MakeRinglessShmWire() {
  return std::make_unique<RinglessShmWire>();
}

INSTANTIATE_TEST_SUITE_P(Shm, WireConformance, testing::Values(&MakeShmWire));
INSTANTIATE_TEST_SUITE_P(TightShm, WireConformance, testing::Values(&MakeTightShmWire));
INSTANTIATE_TEST_SUITE_P(RinglessShm, WireConformance, testing::Values(&MakeRinglessShmWire));

}  // namespace
}  // namespace cistern::transport
