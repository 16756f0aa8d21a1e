#include "tools/ctl/connection.h"

#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

using ::testing::HasSubstr;

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + name;
  std::ofstream(path) << text;
  return path;
}

constexpr char kMaster[] =
    R"({"kind":"master","pid":7,"id":"00","pool_id":"000102030405060708090a0b0c0d0e0f",)"
    R"("data":"127.0.0.1:1000","grpc":"127.0.0.1:1001"})";

TEST(SplitHostPortTest, TakesNamesIpv4AndBracketedIpv6) {
  EXPECT_EQ(SplitHostPort("a.b:7600")->host, "a.b");
  EXPECT_EQ(SplitHostPort("127.0.0.1:1")->port, "1");
  EXPECT_EQ(SplitHostPort("[::1]:7600")->host, "::1");
  EXPECT_EQ(JoinHostPort("::1", "7600"), "[::1]:7600");
  for (const char* bad :
       {"", "host", ":1", "host:", "host:0", "host:65536", "host:x", "::1:7600"}) {
    EXPECT_EQ(SplitHostPort(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(EndpointsTest, ReadsADaemonsFile) {
  const auto endpoints = ParseEndpoints(kMaster);
  ASSERT_TRUE(endpoints.ok()) << endpoints.status();
  EXPECT_EQ(endpoints->kind, "master");
  EXPECT_EQ(endpoints->pid, 7);
  EXPECT_EQ(endpoints->data, "127.0.0.1:1000");
  EXPECT_EQ(endpoints->grpc, "127.0.0.1:1001");
}

TEST(EndpointsTest, RefusesOtherThings) {
  for (const char* bad : {"", "[]", "{}", R"({"kind":"x","data":"a:1"})", R"({"kind":"store"})",
                          R"({"kind":"store","data":"nonsense"})"}) {
    EXPECT_EQ(ParseEndpoints(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(ReadEndpointsFile("/nonexistent/e.json").status().code(), absl::StatusCode::kNotFound);
}

TEST(ResolveConnectionTest, DefaultsToThisHost) {
  const auto connection = ResolveConnection({});
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(connection->master, "127.0.0.1:7601");
  EXPECT_EQ(connection->data, "127.0.0.1:7600");
}

TEST(ResolveConnectionTest, OneAddressImpliesTheOther) {
  EXPECT_EQ(ResolveConnection({.master = "h:9001"})->data, "h:7600");
  EXPECT_EQ(ResolveConnection({.data = "[fd00::1]:9000"})->master, "[fd00::1]:7601");
}

TEST(ResolveConnectionTest, FlagsBeatTheEndpointsFile) {
  const std::string path = WriteFile("e.json", kMaster);
  const auto connection = ResolveConnection({.data = "h:5", .endpoints = path});
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(connection->master, "127.0.0.1:1001");
  EXPECT_EQ(connection->data, "h:5");
  ASSERT_EQ(connection->pool_id.size(), 16u);
  EXPECT_EQ(connection->pool_id[15], 15);
  unlink(path.c_str());
}

TEST(ResolveConnectionTest, ReadsAClientsConfiguration) {
  const std::string token = WriteFile("token", "0123456789abcdef");
  const std::string path = WriteFile(
      "c.toml", "master_address = \"10.0.0.1:7000\"\npool_token_file = \"" + token + "\"\n");
  const auto connection = ResolveConnection({.config = path});
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(connection->data, "10.0.0.1:7000");
  EXPECT_EQ(connection->master, "10.0.0.1:7601");
  EXPECT_EQ(connection->token_file, token);
  unlink(path.c_str());
  unlink(token.c_str());
}

TEST(ResolveConnectionTest, TakesTheWireAndTheDeadlineFromTheConfiguration) {
  const std::string path =
      WriteFile("wired.toml", "wire = \"tcp\"\ndeadline = \"7s\"\nconnections_per_store = 5\n");
  const auto connection = ResolveConnection({.config = path});
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ(connection->wire, "tcp");
  EXPECT_EQ(connection->deadline_ms, 7'000u);
  EXPECT_EQ(connection->connections_per_store, 5u);
  unlink(path.c_str());
}

TEST(ResolveConnectionTest, SaysWhichInputIsWrong) {
  EXPECT_THAT(std::string(ResolveConnection({.master = "x"}).status().message()),
              HasSubstr("--master: 'x' is not HOST:PORT"));
  const std::string path = WriteFile("s.json", R"({"kind":"store","data":"a:1"})");
  EXPECT_THAT(std::string(ResolveConnection({.endpoints = path}).status().message()),
              HasSubstr("is a store's"));
  unlink(path.c_str());
}

}  // namespace
}  // namespace cistern::ctl
