#include "base/ops/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "base/ops/http_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    options_.handler = [this](const std::string& path) {
      ++handled_;
      HttpResponse response;
      response.body = path == "/large" ? std::string(4 << 20, 'x') : "you asked for " + path;
      return response;
    };
  }
  void Start() {
    auto server = HttpServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  uint16_t port() const { return server_->port(); }
  // Whether the server closes it, within a generous time.
  static bool Closed(int fd) {
    const timeval patience{20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    char buffer[4096];
    ssize_t n;
    while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

  HttpServer::Options options_;
  std::atomic<int> handled_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAGet) {
  Start();
  const HttpReply reply = HttpGet(port(), "/metrics?x=1");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "you asked for /metrics");
  EXPECT_THAT(reply.head, HasSubstr("Content-Length: 22"));
  EXPECT_THAT(reply.head, HasSubstr("Connection: close"));
}

TEST_F(HttpServerTest, AnswersAHeadWithoutABody) {
  Start();
  const HttpReply reply = HttpExchange(port(), "HEAD /x HTTP/1.0\n\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "");
  EXPECT_THAT(reply.head, HasSubstr("Content-Length: 16"));
}

TEST_F(HttpServerTest, SendsALargeBodyWhole) {
  Start();
  EXPECT_EQ(HttpGet(port(), "/large").body, std::string(4 << 20, 'x'));
}

TEST_F(HttpServerTest, RefusesOtherMethods) {
  Start();
  const HttpReply reply = HttpExchange(port(), "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(reply.status, 405);
  EXPECT_THAT(reply.head, HasSubstr("Allow: GET, HEAD"));
  EXPECT_EQ(handled_, 0);
}

TEST_F(HttpServerTest, AnswersGarbageAtOnce) {
  Start();
  for (const std::string& garbage :
       {std::string("CSTM\x01\x01\x00\x00", 8), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("GET\r\n\r\n"), std::string("GET  HTTP/1.1\r\n\r\n"),
        std::string("GET x HTTP/1.1\r\n\r\n"), std::string("GET /a b HTTP/1.1\r\n\r\n"),
        std::string("GET /\x7f HTTP/1.1\r\n\r\n"), std::string("\r\n\r\n"),
        std::string("GET / HTTP/9.1\r\n\r\n"), std::string("\x16\x03\x01\x02", 4)}) {
    EXPECT_EQ(HttpExchange(port(), garbage).status, 400) << garbage;
  }
  EXPECT_EQ(handled_, 0);
}

TEST_F(HttpServerTest, BoundsTheRequest) {
  Start();
  const std::string head = "GET / HTTP/1.1\r\nX: ";
  EXPECT_EQ(HttpExchange(port(), head + std::string(16 << 10, 'x')).status, 431);
  EXPECT_EQ(HttpExchange(port(), "GET /" + std::string(16 << 10, 'x')).status, 431);
  EXPECT_EQ(HttpExchange(port(), head + std::string(4 << 10, 'x') + "\r\n\r\n").status, 200);
}

TEST_F(HttpServerTest, RandomBytesDoNoHarm) {
  Start();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = i % 2 == 0 ? "" : "GET / HTTP/1.1\r\n";
    for (unsigned n = random() % 2000; n > 0; --n) bytes.push_back(static_cast<char>(random()));
    const int fd = DialLoopback(port());
    ASSERT_GE(fd, 0);
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  EXPECT_EQ(HttpGet(port(), "/").status, 200);
}

TEST_F(HttpServerTest, CutsWhoIsSlow) {
  options_.timeout = absl::Milliseconds(50);
  Start();
  const int silent = DialLoopback(port());
  const int half = DialLoopback(port());
  ASSERT_GT(send(half, "GET / HT", 8, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(Closed(silent));
  EXPECT_TRUE(Closed(half));
  close(silent);
  close(half);
  EXPECT_EQ(handled_, 0);
}

TEST_F(HttpServerTest, CutsWhoDoesNotTakeTheAnswer) {
  options_.timeout = absl::Milliseconds(50);
  Start();
  const int fd = DialLoopback(port());
  ASSERT_GT(send(fd, "GET /large HTTP/1.1\r\n\r\n", 23, MSG_NOSIGNAL), 0);
  // Served before the time is up, so that its end is seen and not its beginning.
  while (handled_ == 0) EXPECT_EQ(HttpGet(port(), "/").status, 200);
  // By then the reader is gone, and the rest of the answer was thrown away with its connection.
  EXPECT_TRUE(Closed(fd));
  close(fd);
}

TEST_F(HttpServerTest, SlowPeersCannotKeepOthersOut) {
  options_.max_connections = 4;
  options_.timeout = absl::Minutes(10);
  Start();
  std::vector<int> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(DialLoopback(port()));
    ASSERT_GE(slow.back(), 0);
    (void)send(slow.back(), "GET", 3, MSG_NOSIGNAL);
    if (i % 10 != 0) continue;
    EXPECT_EQ(HttpGet(port(), "/").status, 200);
  }
  EXPECT_EQ(HttpGet(port(), "/").status, 200);
  // The oldest ones made room.
  EXPECT_TRUE(Closed(slow.front()));
  for (const int fd : slow) close(fd);
}

TEST_F(HttpServerTest, StopsWithConnectionsOpen) {
  options_.timeout = absl::Minutes(10);
  Start();
  const int fd = DialLoopback(port());
  const uint16_t old = port();
  server_->Stop();
  EXPECT_TRUE(Closed(fd));
  close(fd);
  EXPECT_EQ(DialLoopback(old), -1);
  server_->Stop();
}

TEST_F(HttpServerTest, SaysWhatIsWrongWithItsAddress) {
  Start();
  HttpServer::Options second = options_;
  second.port = port();
  const auto taken = HttpServer::Start(second);
  EXPECT_TRUE(absl::IsUnavailable(taken.status())) << taken.status();
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr(std::to_string(port())));
  second.address = "example";
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start(second).status()));
}

}  // namespace
}  // namespace cistern
