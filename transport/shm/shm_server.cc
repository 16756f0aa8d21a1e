#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_link.h"
#include "transport/shm/unix_socket.h"
#include "transport/stream/stream_server.h"

namespace cistern::transport {
namespace {

class ShmServerWire final : public ServerWire {
 public:
  explicit ShmServerWire(const ShmServerOptions& options)
      : uids_(options.allowed_uids),
        gids_(options.allowed_gids),
        ring_bytes_(options.ring_bytes),
        budget_(
            std::make_shared<ShmBudget>(options.max_mapped_bytes, options.max_lent_mapped_bytes)) {
    if (uids_.empty() && gids_.empty()) {
      uids_.push_back(geteuid());
      gids_.push_back(getegid());
    }
  }

  std::string name() const override { return "shm"; }
  absl::Status OnAccepted(int fd, const SocketAddress&, std::string* address) override {
    *address = "a process on this host";
    CISTERN_ASSIGN_OR_RETURN(const PeerCredentials peer, CredentialsOf(fd));
    *address = absl::StrCat("pid ", peer.pid, " of uid ", peer.uid, ", gid ", peer.gid);
    const auto holds = [](const auto& list, auto id) {
      return std::find(list.begin(), list.end(), id) != list.end();
    };
    if (holds(uids_, peer.uid) || holds(gids_, peer.gid)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("the store lets neither uid ", peer.uid, " nor gid ", peer.gid,
                     " use shared memory: see shm.allowed_uids and shm.allowed_gids"));
  }
  std::unique_ptr<StreamLink> MakeLink(int fd) override {
    return std::make_unique<ShmServerLink>(fd, ring_bytes_, budget_);
  }

  // The socket's file: whoever may be let in must be able to open it; who comes is checked.
  mode_t socket_mode() const {
    const bool own_only =
        std::all_of(uids_.begin(), uids_.end(), [](uid_t uid) { return uid == geteuid(); });
    if (!own_only) return 0666;
    if (gids_.empty()) return 0600;
    return std::all_of(gids_.begin(), gids_.end(), [](gid_t gid) { return gid == getegid(); })
               ? 0660
               : 0666;
  }

 private:
  std::vector<uid_t> uids_;
  std::vector<gid_t> gids_;
  const uint64_t ring_bytes_;
  const std::shared_ptr<ShmBudget> budget_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WireServer>> ListenShm(const ShmServerOptions& options,
                                                      RequestHandler* handler) {
  if (options.ring_bytes < kMinRingBytes || options.ring_bytes > kMaxRingBytes ||
      options.ring_bytes % 4096 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("shm: a ring has ", kMinRingBytes, " to ",
                                                   kMaxRingBytes, " bytes, in steps of 4096; not ",
                                                   options.ring_bytes));
  }
  auto wire = std::make_shared<ShmServerWire>(options);
  CISTERN_ASSIGN_OR_RETURN(OwnedFd listen_fd, ListenUnix(options.socket_path, wire->socket_mode()));
  const ino_t inode = InodeOf(options.socket_path);
  StreamServerOptions stream;
  stream.wire = std::move(wire);
  stream.io_threads = options.io_threads;
  stream.limits = options.limits;
  stream.identity = options.identity;
  stream.clock = options.clock;
  stream.address = absl::StrCat("unix:", options.socket_path);
  stream.on_stopped = [path = options.socket_path, inode] { RemoveUnixSocket(path, inode); };
  return StartStreamServer(std::move(stream), listen_fd.Release(), handler);
}

}  // namespace cistern::transport
