#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/stream/stream_server.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

class TcpServerWire final : public ServerWire {
 public:
  std::string name() const override { return "tcp"; }
  absl::Status OnAccepted(int fd, const SocketAddress& peer, std::string* address) override {
    SetNoDelay(fd);
    *address = peer.ToString();
    return absl::OkStatus();
  }
  std::unique_ptr<StreamLink> MakeLink(int fd) override { return std::make_unique<InlineLink>(fd); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<WireServer>> ListenTcp(const TcpServerOptions& options,
                                                      RequestHandler* handler) {
  CISTERN_ASSIGN_OR_RETURN(
      auto addresses, ResolveHost(options.listen_address, options.port, /*literal_only=*/false));
  const SocketAddress& wanted = addresses.front();
  if (options.identity.token.empty() && !wanted.IsLoopback()) {
    return absl::FailedPreconditionError(
        absl::StrCat("refusing to listen on ", wanted.ToString(),
                     " without a pool token: set pool_token_file, or listen on 127.0.0.1"));
  }
  CISTERN_ASSIGN_OR_RETURN(const int listen_fd, ListenOn(wanted));
  const auto address = LocalAddress(listen_fd);
  if (!address.ok()) {
    close(listen_fd);
    return address.status();
  }
  StreamServerOptions stream;
  stream.wire = std::make_shared<TcpServerWire>();
  stream.io_threads = options.io_threads;
  stream.limits = options.limits;
  stream.identity = options.identity;
  stream.clock = options.clock;
  stream.address = address->ToString();
  stream.port = address->port();
  return StartStreamServer(std::move(stream), listen_fd, handler);
}

}  // namespace cistern::transport
