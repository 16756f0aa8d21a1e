#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/stream/stream_channel.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

class TcpClientWire final : public ClientWire {
 public:
  TcpClientWire(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}

  std::string name() const override { return "tcp"; }
  std::string address() const override {
    const bool bare_v6 = host_.find(':') != std::string::npos && host_[0] != '[';
    return bare_v6 ? absl::StrCat("[", host_, "]:", port_) : absl::StrCat(host_, ":", port_);
  }
  absl::StatusOr<std::vector<SocketAddress>> Resolve(bool may_block) override {
    return ResolveHost(host_, port_, /*literal_only=*/!may_block);
  }
  std::unique_ptr<StreamLink> MakeLink(int fd, std::function<void()>) override {
    return std::make_unique<InlineLink>(fd);
  }

 private:
  const std::string host_;
  const uint16_t port_;
};

}  // namespace

std::unique_ptr<Channel> MakeTcpChannel(IoContext* io, const TcpChannelOptions& options) {
  StreamChannelOptions stream;
  stream.wire = std::make_shared<TcpClientWire>(options.host, options.port);
  stream.identity = options.identity;
  stream.expected_peer_id = options.expected_peer_id;
  stream.connections = options.connections;
  stream.separate_small_lane = options.separate_small_lane;
  stream.connect_timeout = options.connect_timeout;
  stream.clock = options.clock;
  return MakeStreamChannel(io, stream);
}

}  // namespace cistern::transport
