#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_link.h"
#include "transport/shm/unix_socket.h"
#include "transport/stream/stream_channel.h"

namespace cistern::transport {
namespace {

class ShmClientWire final : public ClientWire {
 public:
  ShmClientWire(std::string path, std::shared_ptr<LentMemory> lent)
      : path_(std::move(path)), lent_(std::move(lent)) {}

  std::string name() const override { return "shm"; }
  std::string address() const override { return absl::StrCat("unix:", path_); }
  absl::StatusOr<std::vector<SocketAddress>> Resolve(bool) override {
    CISTERN_ASSIGN_OR_RETURN(SocketAddress address, UnixAddress(path_));
    return std::vector<SocketAddress>{std::move(address)};
  }
  std::unique_ptr<StreamLink> MakeLink(int fd, std::function<void()> write_soon) override {
    return std::make_unique<ShmClientLink>(fd, lent_, std::move(write_soon));
  }

 private:
  const std::string path_;
  const std::shared_ptr<LentMemory> lent_;
};

}  // namespace

std::unique_ptr<Channel> MakeShmChannel(IoContext* io, const ShmChannelOptions& options) {
  StreamChannelOptions stream;
  stream.wire = std::make_shared<ShmClientWire>(options.socket_path, options.lent);
  stream.identity = options.identity;
  stream.expected_peer_id = options.expected_peer_id;
  stream.connections = options.connections;
  stream.separate_small_lane = options.separate_small_lane;
  stream.connect_timeout = options.connect_timeout;
  stream.clock = options.clock;
  return MakeStreamChannel(io, stream);
}

}  // namespace cistern::transport
