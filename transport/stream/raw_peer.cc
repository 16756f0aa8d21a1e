#include "transport/stream/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/crc32c.h"
#include "proto/types.pb.h"
#include "transport/handshake.h"

namespace cistern::transport {

std::string RawFrame(FrameType type, uint64_t id, std::string_view meta, std::string_view payload) {
  FrameHeader header;
  header.type = type;
  header.request_id = id;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  header.meta_crc = Crc32c(meta.data(), meta.size());
  header.payload_bytes = payload.size();
  std::string bytes(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes.append(meta).append(payload);
}

RawPeer::RawPeer(uint16_t port, int receive_buffer_bytes)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

RawPeer::RawPeer(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path.data(), path.size());
  connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

RawPeer::~RawPeer() {
  close(fd_);
  for (const int fd : fds_) close(fd);
}

bool RawPeer::SendWithFds(std::string_view bytes, const std::vector<int>& fds) {
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL);
  return n >= 0 && Send(bytes.substr(static_cast<size_t>(n)));
}

ssize_t RawPeer::ReceiveSome(void* out, size_t bytes) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)];
  iovec piece = {out, bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      fds_.push_back(fd);
    }
  }
  return n;
}

bool RawPeer::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool RawPeer::SendFrame(FrameType type, uint64_t id, std::string_view meta,
                        std::string_view payload) {
  return Send(RawFrame(type, id, meta, payload));
}

bool RawPeer::ReceiveBytes(char* out, size_t bytes, absl::Duration patience) {
  const MonoTime end = Clock::Real().Mono() + patience;
  size_t got = 0;
  while (got < bytes) {
    const absl::Duration left = end - Clock::Real().Mono();
    pollfd wait{fd_, POLLIN, 0};
    if (left <= absl::ZeroDuration() ||
        poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) {
      return false;
    }
    const ssize_t n = ReceiveSome(out + got, bytes - got);
    if (n <= 0) return false;
    got += static_cast<size_t>(n);
  }
  return true;
}

std::optional<RawPeer::Frame> RawPeer::Receive(absl::Duration patience) {
  char bytes[kFrameHeaderBytes];
  if (!ReceiveBytes(bytes, sizeof(bytes), patience)) return std::nullopt;
  const auto header =
      DecodeFrameHeader(reinterpret_cast<const uint8_t*>(bytes), 1 << 20, kMaxDataFrameBytes);
  if (!header.ok()) return std::nullopt;
  Frame frame;
  frame.header = *header;
  frame.meta.resize(header->meta_bytes);
  frame.payload.resize(header->payload_bytes);
  if (!ReceiveBytes(frame.meta.data(), frame.meta.size(), patience) ||
      !ReceiveBytes(frame.payload.data(), frame.payload.size(), patience)) {
    return std::nullopt;
  }
  return frame;
}

bool RawPeer::Drain(size_t bytes, absl::Duration patience) {
  std::string drained(bytes, '\0');
  return ReceiveBytes(drained.data(), bytes, patience);
}

bool RawPeer::WaitClosed(absl::Duration patience) {
  const MonoTime end = Clock::Real().Mono() + patience;
  char bytes[4096];
  for (;;) {
    const absl::Duration left = end - Clock::Real().Mono();
    pollfd wait{fd_, POLLIN, 0};
    if (left <= absl::ZeroDuration() ||
        poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) {
      return false;
    }
    const ssize_t n = ReceiveSome(bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
  }
}

bool RawPeer::Handshake(const LocalIdentity& identity, bool small_lane) {
  ClientHandshake handshake(identity, "", small_lane);
  if (!SendFrame(FrameType::kHello, 0, handshake.MakeHello().SerializeAsString())) return false;
  const auto answer = Receive();
  if (!answer.has_value()) return false;
  if (answer->header.type == FrameType::kError) {
    wire::ErrorReply error;
    if (error.ParseFromString(answer->meta)) refusal_ = error.message();
    return false;
  }
  wire::HelloAck ack;
  if (!ack.ParseFromString(answer->meta)) return false;
  const auto auth = handshake.OnHelloAck(ack);
  if (!auth.ok() || !SendFrame(FrameType::kAuth, 0, auth->SerializeAsString())) return false;
  const auto ok = Receive();
  return ok.has_value() && ok->header.type == FrameType::kAuthOk;
}

}  // namespace cistern::transport
