// A small HTTP server for operators: GET and HEAD, one answer a connection, one thread.
#ifndef CISTERN_BASE_OPS_HTTP_SERVER_H_
#define CISTERN_BASE_OPS_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Promise: whatever a peer sends, or does not send, costs its own connection only: a request has at
// most `max_request_bytes`, a connection lives no longer than `timeout`, and there are at most
// `max_connections`, of which the one that has been there longest makes room for a new one. Other
// methods are answered 405, what is no request 400.
// Thread-safe. Owns one thread, on which `handler` runs: it must not wait for long.
class HttpServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";  // IPv4 or IPv6, as a number, or "localhost"
    uint16_t port = 0;                  // 0 = any free one
    // `path` is what was asked for without a query, as it came.
    std::function<HttpResponse(const std::string& path)> handler;
    size_t max_connections = 32;
    size_t max_request_bytes = 8 << 10;
    absl::Duration timeout = absl::Seconds(5);
    Clock* clock = &Clock::Real();
  };
  // InvalidArgument: the address. Unavailable: the port is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(Options options);
  ~HttpServer();  // stops

  uint16_t port() const { return port_; }
  // Closes what is open and joins the thread. Idempotent.
  void Stop();

 private:
  struct Connection {
    int fd = -1;
    MonoTime deadline;
    std::string in;
    std::string out;  // not empty: the answer, of which `sent` bytes have left
    size_t sent = 0;
    bool lingers = false;  // the answer has left: until the peer hangs up
  };

  explicit HttpServer(Options options) : options_(std::move(options)) {}
  absl::Status Listen();
  void Run();
  void Accept();
  // False: the connection is over.
  bool Serve(Connection& connection, short events);
  bool Read(Connection& connection);
  bool Write(Connection& connection);
  void Answer(Connection& connection);
  int TimeoutMs() const;

  const Options options_;
  int listen_fd_ = -1;
  int wake_fd_ = -1;
  uint16_t port_ = 0;
  std::list<Connection> connections_;  // the oldest first
  MonoTime accept_again_;              // out of descriptors until then
  std::thread thread_;
};

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_HTTP_SERVER_H_
