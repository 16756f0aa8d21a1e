#include "tools/ctl/port_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/key_hash.h"
#include "proto/handshake.pb.h"
#include "tools/ctl/connection.h"

namespace cistern::ctl {
namespace {

// docs/formats/frame.md. Written out here because tools know only the library's interface.
constexpr size_t kFrameHeaderBytes = 32;
constexpr char kFrameMagic[] = "CSTM";
constexpr char kHelloType = 1;
constexpr char kHelloAckType = 2;
constexpr char kErrorType = 5;
constexpr size_t kMaxReplyBytes = 64 << 10;

using Kind = PortFinding::Kind;

std::string HelloFrame() {
  wire::Hello hello;
  hello.set_major_min(1);
  hello.set_major_max(1);
  hello.set_kind(wire::PEER_TOOL);
  std::string nonce(16, '\0');
  RandomBytes(nonce.data(), nonce.size());
  hello.set_nonce(nonce);
  const std::string meta = hello.SerializeAsString();
  std::string frame(kFrameHeaderBytes, '\0');
  memcpy(frame.data(), kFrameMagic, 4);
  frame[4] = 1;
  frame[5] = kHelloType;
  frame[8] = 1;  // request id
  const auto bytes = static_cast<uint32_t>(meta.size());
  const uint32_t crc = Crc32c(meta.data(), meta.size());
  memcpy(frame.data() + 16, &bytes, sizeof(bytes));
  memcpy(frame.data() + 20, &crc, sizeof(crc));
  return frame + meta;
}

bool AwaitReady(int fd, short events, MonoTime until, const Clock& clock) {
  const absl::Duration left = until - clock.Mono();
  if (left <= absl::ZeroDuration()) return false;
  pollfd poller = {fd, events, 0};
  return poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) == 1;
}

// -1: nobody is there.
int Dial(const HostPort& to, MonoTime until, const Clock& clock) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return -1;
  int fd = -1;
  for (const addrinfo* one = found; one != nullptr && fd < 0; one = one->ai_next) {
    fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    int error = connect(fd, one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t bytes = sizeof(error);
      error = ETIMEDOUT;
      if (AwaitReady(fd, POLLOUT, until, clock)) {
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
      }
    }
    if (error == 0) break;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

// What comes back for `question`: all of it until the peer closes, or until `enough` says so.
// Nothing: nobody listens.
template <typename Enough>
std::optional<std::string> Ask(const HostPort& to, const std::string& question, MonoTime until,
                               const Clock& clock, Enough&& enough) {
  const int fd = Dial(to, until, clock);
  if (fd < 0) return std::nullopt;
  (void)send(fd, question.data(), question.size(), MSG_NOSIGNAL);
  std::string reply;
  char buffer[4096];
  while (reply.size() < kMaxReplyBytes && !enough(reply) && AwaitReady(fd, POLLIN, until, clock)) {
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) break;
    reply.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return reply;
}

bool IsFrame(const std::string& reply) {
  return reply.size() >= kFrameHeaderBytes && reply.compare(0, 4, kFrameMagic) == 0;
}

std::string FrameMeta(const std::string& reply) {
  uint32_t bytes = 0;
  memcpy(&bytes, reply.data() + 16, sizeof(bytes));
  return reply.size() - kFrameHeaderBytes < bytes ? "" : reply.substr(kFrameHeaderBytes, bytes);
}

bool IsWholeFrame(const std::string& reply) {
  if (!IsFrame(reply)) return reply.size() >= kFrameHeaderBytes;
  uint32_t bytes = 0;
  memcpy(&bytes, reply.data() + 16, sizeof(bytes));
  return reply.size() >= kFrameHeaderBytes + bytes;
}

// The first frame of an HTTP/2 server is SETTINGS: type 4, stream 0. Also where it complains first
// about what it was sent, as gRPC does: GOAWAY, type 7.
bool IsHttp2(const std::string& reply) {
  return reply.size() >= 9 && reply[0] == 0 && (reply[3] == 4 || reply[3] == 7) &&
         memcmp(reply.data() + 5, "\0\0\0\0", 4) == 0;
}

bool IsHttp1(const std::string& reply) { return absl::StartsWith(reply, "HTTP/1."); }

std::string Field(const nlohmann::json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

void ReadHealth(const std::string& reply, PortFinding* finding) {
  const size_t body = reply.find("\r\n\r\n");
  if (body == std::string::npos) return;
  const auto json = nlohmann::json::parse(reply.substr(body + 4), nullptr, false);
  if (!json.is_object()) return;
  finding->daemon = Field(json, "kind");
  finding->grpc = Field(json, "grpc");
  finding->data = Field(json, "data");
  finding->master = Field(json, "master");
}

// What is to be said whichever port was wanted.
std::string Common(const std::string& address, const PortFinding& finding) {
  switch (finding.kind) {
    case Kind::kOther:
      return absl::StrCat("what listens at ", address, " is no port of a Cistern daemon");
    case Kind::kOtherMajor:
      return absl::StrCat(address, " is a data port of another protocol version");
    case Kind::kSilent:
      return absl::StrCat("somebody listens at ", address, " and says nothing");
    default:
      return "";
  }
}

std::string OrDefault(const std::string& told, const std::string& address, const char* port) {
  if (!told.empty()) return told;
  const absl::StatusOr<HostPort> parts = SplitHostPort(address);
  return absl::StrCat(JoinHostPort(parts.ok() ? parts->host : "127.0.0.1", port),
                      " unless its configuration names another");
}

}  // namespace

PortFinding ProbePort(const std::string& address, absl::Duration patience, Clock& clock) {
  PortFinding finding;
  const absl::StatusOr<HostPort> to = SplitHostPort(address);
  if (!to.ok()) return finding;
  const MonoTime start = clock.Mono();
  std::optional<std::string> reply =
      Ask(*to, HelloFrame(), start + patience / 3, clock, IsWholeFrame);
  if (!reply.has_value()) return finding;
  finding.kind = Kind::kSilent;
  bool spoke = !reply->empty();
  if (IsFrame(*reply)) {
    wire::HelloAck ack;
    const char type = (*reply)[5];
    if (type == kHelloAckType && ack.ParseFromString(FrameMeta(*reply))) {
      finding.kind = ack.kind() == wire::PEER_MASTER ? Kind::kMasterData : Kind::kStoreData;
      return finding;
    }
    finding.kind = type == kErrorType ? Kind::kOtherMajor : Kind::kOther;
    return finding;
  }
  if (!IsHttp1(*reply) && !IsHttp2(*reply)) {
    reply =
        Ask(*to, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9),
            start + patience * 2 / 3, clock, [](const std::string& r) { return r.size() >= 9; });
    spoke |= reply.has_value() && !reply->empty();
  }
  if (reply.has_value() && IsHttp2(*reply)) {
    finding.kind = Kind::kGrpc;
    return finding;
  }
  if (reply.has_value() && IsHttp1(*reply)) {
    reply = Ask(*to, "GET /healthz HTTP/1.1\r\nHost: cisternctl\r\n\r\n", start + patience, clock,
                [](const std::string&) { return false; });
    finding.kind = Kind::kOther;
    if (reply.has_value()) ReadHealth(*reply, &finding);
    if (!finding.daemon.empty()) finding.kind = Kind::kHttp;
    return finding;
  }
  if (spoke) finding.kind = Kind::kOther;
  return finding;
}

std::string AdviceForGrpc(const std::string& address, const PortFinding& finding) {
  switch (finding.kind) {
    case Kind::kMasterData:
      return absl::StrCat(address,
                          " is a master's data port, for clients; cisternctl needs its gRPC "
                          "port: --master ",
                          OrDefault("", address, kDefaultGrpcPort));
    case Kind::kStoreData:
      return absl::StrCat(address,
                          " is a store's data port; cisternctl asks the master: --master "
                          "with the master_address of the store's configuration");
    case Kind::kHttp:
      if (finding.daemon == "store") {
        return absl::StrCat(address,
                            " is a store's HTTP port; cisternctl asks the master: --master ",
                            finding.master);
      }
      return absl::StrCat(address,
                          " is the master's HTTP port; cisternctl needs its gRPC port: "
                          "--master ",
                          OrDefault(finding.grpc, address, kDefaultGrpcPort));
    default:
      return Common(address, finding);
  }
}

std::string AdviceForData(const std::string& address, const PortFinding& finding) {
  switch (finding.kind) {
    case Kind::kGrpc:
      return absl::StrCat(address,
                          " is a gRPC port, the master's for stores and for cisternctl's "
                          "other commands; this one needs its data port: --data ",
                          OrDefault("", address, kDefaultDataPort));
    case Kind::kStoreData:
      return absl::StrCat(address,
                          " is a store's data port; --data names the master's: its default "
                          "is ",
                          kDefaultDataPort);
    case Kind::kHttp:
      if (finding.daemon == "store") {
        return absl::StrCat(address,
                            " is a store's HTTP port; --data names the master's data port: "
                            "its default is ",
                            kDefaultDataPort);
      }
      return absl::StrCat(address, " is the master's HTTP port; this needs its data port: --data ",
                          OrDefault(finding.data, address, kDefaultDataPort));
    default:
      return Common(address, finding);
  }
}

}  // namespace cistern::ctl
