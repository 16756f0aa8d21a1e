#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/rdma/dialer.h"
#include "transport/rdma/rdma.h"
#include "transport/stream/stream_channel.h"

namespace cistern::transport {
namespace {

class RdmaClientWire final : public ClientWire {
 public:
  RdmaClientWire(std::shared_ptr<rdma::Host> host, std::vector<std::string> addresses,
                 uint16_t port)
      : host_(std::move(host)), addresses_(std::move(addresses)), port_(port) {}

  std::string name() const override { return "rdma"; }
  std::string address() const override {
    const std::string first = addresses_.empty() ? "" : addresses_.front();
    const bool bare_v6 = first.find(':') != std::string::npos;
    return bare_v6 ? absl::StrCat("rdma:[", first, "]:", port_)
                   : absl::StrCat("rdma:", first, ":", port_);
  }
  absl::StatusOr<std::vector<SocketAddress>> Resolve(bool may_block) override {
    std::vector<SocketAddress> all;
    absl::Status failure = absl::UnavailableError("the peer has no RDMA address");
    for (const std::string& address : addresses_) {
      auto some = ResolveHost(address, port_, /*literal_only=*/!may_block);
      if (!some.ok()) {
        if (!may_block && some.status().code() == absl::StatusCode::kNotFound) return some.status();
        failure = some.status();
        continue;
      }
      all.insert(all.end(), some->begin(), some->end());
    }
    if (all.empty()) return failure;
    // Each connection begins with another: they spread over the peer's ports, and one that broke
    // does not insist on the port by which it did.
    const size_t first = turn_.fetch_add(1, std::memory_order_relaxed) % all.size();
    std::rotate(all.begin(), all.begin() + static_cast<ptrdiff_t>(first), all.end());
    return all;
  }
  std::unique_ptr<StreamLink> MakeLink(int, std::function<void()>) override { return nullptr; }
  bool has_sockets() const override { return false; }
  absl::StatusOr<std::unique_ptr<LinkDialer>> Dial(const SocketAddress& address) override {
    return rdma::Dial(host_, address);
  }

 private:
  const std::shared_ptr<rdma::Host> host_;
  const std::vector<std::string> addresses_;
  const uint16_t port_;
  std::atomic<size_t> turn_{0};
};

}  // namespace

std::unique_ptr<Channel> MakeRdmaChannel(IoContext* io, const RdmaChannelOptions& options) {
  StreamChannelOptions stream;
  stream.wire = std::make_shared<RdmaClientWire>(options.host, options.addresses, options.port);
  stream.identity = options.identity;
  stream.expected_peer_id = options.expected_peer_id;
  stream.connections = options.connections;
  stream.separate_small_lane = options.separate_small_lane;
  stream.connect_timeout = options.connect_timeout;
  stream.clock = options.clock;
  return MakeStreamChannel(io, stream);
}

}  // namespace cistern::transport
