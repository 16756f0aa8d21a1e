// An HTTP client for tests: one request over a connection of its own.
#ifndef CISTERN_BASE_OPS_HTTP_TESTING_H_
#define CISTERN_BASE_OPS_HTTP_TESTING_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace cistern {

struct HttpReply {
  int status = 0;  // 0: no answer that is HTTP
  std::string head;
  std::string body;
};

// A socket connected to 127.0.0.1; -1 when nobody listens.
int DialLoopback(uint16_t port);
// Sends `bytes` and reads until the server closes, or 20 s have passed.
HttpReply HttpExchange(uint16_t port, std::string_view bytes);
HttpReply HttpGet(uint16_t port, const std::string& path);

// Of a page in Prometheus's format: the value of one series as it is written there
// ("cistern_master_stores{state=\"dead\"}"), NaN when it is not there.
double MetricValue(const std::string& page, const std::string& series);
// The metrics that have at least one series.
std::set<std::string> MetricNames(const std::string& page);

}  // namespace cistern

#endif  // CISTERN_BASE_OPS_HTTP_TESTING_H_
