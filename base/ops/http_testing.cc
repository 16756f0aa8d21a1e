#include "base/ops/http_testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace cistern {

int DialLoopback(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

HttpReply HttpExchange(uint16_t port, std::string_view bytes) {
  HttpReply reply;
  const int fd = DialLoopback(port);
  if (fd < 0) return reply;
  const timeval patience{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;  // it has answered already
    sent += static_cast<size_t>(n);
  }
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  const size_t end = all.find("\r\n\r\n");
  if (all.compare(0, 9, "HTTP/1.1 ") != 0 || end == std::string::npos) return reply;
  reply.status = std::atoi(all.c_str() + 9);
  reply.head = all.substr(0, end);
  reply.body = all.substr(end + 4);
  return reply;
}

HttpReply HttpGet(uint16_t port, const std::string& path) {
  return HttpExchange(port, "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

double MetricValue(const std::string& page, const std::string& series) {
  size_t at = page.find("\n" + series + " ");
  if (at == std::string::npos) return std::nan("");
  return std::strtod(page.c_str() + at + 1 + series.size(), nullptr);
}

std::set<std::string> MetricNames(const std::string& page) {
  std::set<std::string> typed;
  std::set<std::string> seen;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      typed.insert(line.substr(7, line.find(' ', 7) - 7));
    } else if (!line.empty() && line[0] != '#') {
      std::string name = line.substr(0, line.find_first_of("{ "));
      // A histogram's series carry endings.
      for (const std::string ending : {"_bucket", "_sum", "_count"}) {
        if (typed.count(name) != 0 || name.size() <= ending.size()) continue;
        const size_t cut = name.size() - ending.size();
        if (name.substr(cut) == ending && typed.count(name.substr(0, cut)) != 0) name.resize(cut);
      }
      seen.insert(name);
    }
  }
  return seen;
}

}  // namespace cistern
