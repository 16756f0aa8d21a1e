#include "base/ops/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace cistern {
namespace {

constexpr absl::Duration kAcceptRest = absl::Milliseconds(100);

// What a request's first line says.
struct RequestLine {
  std::string method;
  std::string path;
  bool valid = false;
};

RequestLine ParseRequestLine(const std::string& in) {
  RequestLine line;
  const size_t end = in.find_first_of("\r\n");
  const std::string text = in.substr(0, end);
  const size_t first = text.find(' ');
  const size_t second = first == std::string::npos ? first : text.find(' ', first + 1);
  if (second == std::string::npos || text.compare(second + 1, 7, "HTTP/1.") != 0 ||
      text.size() != second + 9 || first == 0) {
    return line;
  }
  line.method = text.substr(0, first);
  line.path = text.substr(first + 1, second - first - 1);
  line.path.resize(std::min(line.path.find('?'), line.path.size()));
  // Printable, so that it can be shown and logged; a path begins with a slash.
  line.valid = !line.path.empty() && line.path.front() == '/' &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  return line;
}

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string Format(const HttpResponse& response, bool with_body) {
  std::string out = absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status),
                                 "\r\nContent-Type: ", response.content_type,
                                 "\r\nContent-Length: ", response.body.size(),
                                 "\r\nConnection: close\r\nCache-Control: no-store\r\n",
                                 response.status == 405 ? "Allow: GET, HEAD\r\n" : "", "\r\n");
  if (with_body) out += response.body;
  return out;
}

bool HasLine(const std::string& in) { return in.find('\n') != std::string::npos; }

// Somebody who speaks another protocol is told at once.
bool HasOtherThanText(const std::string& in) {
  return std::any_of(in.begin(), in.end(), [](char c) {
    return (c < 0x20 && c != '\r' && c != '\n' && c != '\t') || c == 0x7F;
  });
}

// Where the head of the request ends; npos: not yet.
size_t HeadEnd(const std::string& in) {
  const size_t strict = in.find("\r\n\r\n");
  return strict != std::string::npos ? strict : in.find("\n\n");
}

absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& text, uint16_t port,
                                              socklen_t* bytes) {
  sockaddr_storage storage{};
  const std::string address = text == "localhost" ? "127.0.0.1" : text;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *bytes = sizeof(*v4);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *bytes = sizeof(*v6);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("http_address '", text, "' is neither an IPv4 nor an IPv6 address"));
  }
  return storage;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(Options options) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(options)));
  CISTERN_RETURN_IF_ERROR(server->Listen());
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

HttpServer::~HttpServer() {
  Stop();
  if (listen_fd_ >= 0) close(listen_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof(one));
  thread_.join();
  // So that who dials is refused, and does not wait in the backlog.
  close(listen_fd_);
  listen_fd_ = -1;
}

absl::Status HttpServer::Listen() {
  socklen_t bytes = 0;
  CISTERN_ASSIGN_OR_RETURN(sockaddr_storage address,
                           ParseAddress(options_.address, options_.port, &bytes));
  listen_fd_ = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listen_fd_ < 0) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(listen_fd_, 64) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return absl::UnavailableError(
          absl::StrCat("port ", options_.port, " of ", options_.address, " is in use (http_port)"));
    }
    return ErrnoStatus(error, absl::StrCat("cannot listen on ", options_.address, " port ",
                                           options_.port, " (http_address, http_port)"));
  }
  bytes = sizeof(address);
  if (getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  port_ = ntohs(address.ss_family == AF_INET
                    ? reinterpret_cast<const sockaddr_in*>(&address)->sin_port
                    : reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return ErrnoStatus(errno, "eventfd");
  return absl::OkStatus();
}

int HttpServer::TimeoutMs() const {
  const MonoTime now = options_.clock->Mono();
  MonoTime next = MonoTime::Infinite();
  // All have the same time to live: the oldest is due first.
  if (!connections_.empty()) next = connections_.front().deadline;
  if (accept_again_ > now) next = std::min(next, accept_again_);
  if (next == MonoTime::Infinite()) return -1;
  const absl::Duration left = std::max(next - now, absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void HttpServer::Run() {
  std::vector<pollfd> fds;
  while (true) {
    const bool accepts = accept_again_ <= options_.clock->Mono();
    fds.assign({{wake_fd_, POLLIN, 0}, {accepts ? listen_fd_ : -1, POLLIN, 0}});  // poll skips -1
    for (const Connection& connection : connections_) {
      fds.push_back(
          {connection.fd,
           static_cast<short>(connection.out.empty() || connection.lingers ? POLLIN : POLLOUT), 0});
    }
    const int n = poll(fds.data(), fds.size(), TimeoutMs());
    if (n < 0 && errno != EINTR) {
      CISTERN_LOG_EVERY(Error, absl::Seconds(10), "HTTP: poll: ", std::string(strerror(errno)));
      options_.clock->SleepFor(kAcceptRest);
    }
    if (n < 0) continue;
    if (fds[0].revents != 0) break;
    const MonoTime now = options_.clock->Mono();
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      const short events = fds[i].revents;
      const bool keep = now < it->deadline && (events == 0 || Serve(*it, events));
      if (keep) {
        ++it;
        continue;
      }
      close(it->fd);
      it = connections_.erase(it);
    }
    if (fds[1].revents != 0) Accept();
  }
  for (const Connection& connection : connections_) close(connection.fd);
  connections_.clear();
}

void HttpServer::Accept() {
  // A few in a round: those that are there must have their turn.
  for (int i = 0; i < 16; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // The listener stays readable: without a rest this would spin.
      if (errno != EAGAIN) accept_again_ = options_.clock->Mono() + kAcceptRest;
      return;
    }
    if (connections_.size() >= options_.max_connections) {
      close(connections_.front().fd);
      connections_.pop_front();
    }
    Connection& connection = connections_.emplace_back();
    connection.fd = fd;
    connection.deadline = options_.clock->Mono() + options_.timeout;
  }
}

bool HttpServer::Serve(Connection& connection, short events) {
  if ((events & (POLLERR | POLLNVAL)) != 0) return false;
  if (connection.out.empty() || connection.lingers) return Read(connection);
  return Write(connection);
}

bool HttpServer::Read(Connection& connection) {
  char buffer[4096];
  const ssize_t n = recv(connection.fd, buffer, sizeof(buffer), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  // Read and forgotten, so that the peer gets the answer rather than a reset.
  if (connection.lingers) return true;
  connection.in.append(buffer, static_cast<size_t>(n));
  Answer(connection);
  return connection.out.empty() || Write(connection);
}

void HttpServer::Answer(Connection& connection) {
  const bool whole = HeadEnd(connection.in) != std::string::npos;
  const RequestLine request = ParseRequestLine(connection.in);
  HttpResponse response;
  if (!request.valid && (HasLine(connection.in) || HasOtherThanText(connection.in))) {
    response.status = 400;
    response.body = "this is an HTTP port\n";
  } else if (connection.in.size() > options_.max_request_bytes) {
    response.status = 431;
    response.body = "the request is too long\n";
  } else if (!whole) {
    return;
  } else if (request.method != "GET" && request.method != "HEAD") {
    response.status = 405;
    response.body = "only GET and HEAD\n";
  } else {
    response = options_.handler(request.path);
  }
  connection.out = Format(response, request.method != "HEAD");
  connection.in.clear();
}

bool HttpServer::Write(Connection& connection) {
  while (connection.sent < connection.out.size()) {
    const ssize_t n = send(connection.fd, connection.out.data() + connection.sent,
                           connection.out.size() - connection.sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    connection.sent += static_cast<size_t>(n);
  }
  shutdown(connection.fd, SHUT_WR);
  connection.lingers = true;
  connection.out.clear();
  connection.out.shrink_to_fit();
  return true;
}

}  // namespace cistern
