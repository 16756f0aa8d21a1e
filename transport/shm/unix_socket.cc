#include "transport/shm/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr int kListenBacklog = 1024;

absl::Status Unavailable(int error, const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// True: some process listens there.
bool Answers(const SocketAddress& address) {
  const OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  // EAGAIN: its backlog is full, so there is one.
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) ==
             0 ||
         errno == EAGAIN;
}

}  // namespace

absl::StatusOr<SocketAddress> UnixAddress(const std::string& path) {
  SocketAddress address;
  address.path = path;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;
  std::string name = path;
  if (path.size() >= sizeof(un->sun_path)) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    auto fd = std::make_shared<OwnedFd>(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!*fd) return Unavailable(errno, folder);
    name = absl::StrCat("/proc/self/fd/", fd->get(), "/", path.substr(slash + 1));
    address.keep = fd;
    if (name.size() >= sizeof(un->sun_path)) {
      return absl::UnavailableError(absl::StrCat("the name of a socket is too long: ", path));
    }
  }
  std::memcpy(un->sun_path, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  return address;
}

absl::StatusOr<OwnedFd> ListenUnix(const std::string& path, mode_t mode) {
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress wanted, UnixAddress(path));
  if (Answers(wanted)) {
    return absl::UnavailableError(
        absl::StrCat("another process listens at ", path, ": choose another run_dir"));
  }
  // Made beside and moved into place: nobody sees it before it listens with the right mode.
  const std::string made = absl::StrCat(path, ".", getpid());
  CISTERN_ASSIGN_OR_RETURN(const SocketAddress address, UnixAddress(made));
  OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus(errno, "socket");
  unlink(made.c_str());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
    return Unavailable(errno, absl::StrCat("cannot make a socket at ", path));
  }
  if (chmod(made.c_str(), mode) != 0 || listen(fd.get(), kListenBacklog) != 0 ||
      rename(made.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(made.c_str());
    return Unavailable(error, absl::StrCat("cannot make a socket at ", path));
  }
  return fd;
}

ino_t InodeOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

void RemoveUnixSocket(const std::string& path, ino_t inode) {
  if (inode != 0 && InodeOf(path) == inode) unlink(path.c_str());
}

absl::StatusOr<PeerCredentials> CredentialsOf(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return PeerCredentials{credentials.uid, credentials.gid, credentials.pid};
}

}  // namespace cistern::transport
