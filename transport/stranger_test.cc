#include "transport/stranger.h"

#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::transport {
namespace {

using ::testing::HasSubstr;

std::string Describe(std::string_view text) {
  return DescribeStranger(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

TEST(StrangerTest, KnowsTheOtherPortsOfADaemon) {
  // RFC 9113: SETTINGS of 6 bytes, and the preface of a client.
  EXPECT_THAT(Describe(std::string_view("\0\0\6\4\0\0\0\0\0\0\4\0\1\0\0", 15)),
              HasSubstr("grpc_port"));
  EXPECT_THAT(Describe("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HasSubstr("grpc_port"));
  EXPECT_THAT(Describe("HTTP/1.1 400 Bad Request\r\n"), HasSubstr("http_port"));
  EXPECT_THAT(Describe("GET /metrics HTTP/1.1\r\n"), HasSubstr("http_port"));
}

TEST(StrangerTest, KnowsTls) {
  EXPECT_THAT(Describe(std::string_view("\x15\3\1\0\2\2\x28", 7)), HasSubstr("TLS"));
}

TEST(StrangerTest, QuotesTheBeginningOfTheRest) {
  EXPECT_THAT(Describe("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"),
              HasSubstr("\"SSH-2.0-OpenSSH_9.2p1 De\""));
  EXPECT_THAT(Describe(std::string_view("\xff\0\n", 3)), HasSubstr("\"\\xff\\x00\\n\""));
  EXPECT_THAT(Describe(""), HasSubstr("\"\""));
}

}  // namespace
}  // namespace cistern::transport
