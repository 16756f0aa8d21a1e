// The pure parts; the daemons themselves are met in tests/integration.
#include "tools/pool/local_pool.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace cistern::pool {
namespace {

using ::testing::HasSubstr;

TEST(LocalPoolTest, SegmentsAreWholePagesAndSumToAtMostThePool) {
  EXPECT_EQ(SegmentBytes({.stores = 3, .pool_bytes = 100 << 20}), 34951168u);  // 8533 pages
  EXPECT_EQ(SegmentBytes({.stores = 1, .pool_bytes = 64 << 20}), uint64_t{64} << 20);
}

TEST(LocalPoolTest, TheDaemonsLoaderTakesTheMastersFile) {
  config::MasterConfig config;
  const auto loaded = LoadConfig(MasterToml("/d"), "master.toml", {}, &config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.data_port(), 0u);
  EXPECT_EQ(config.grpc_port(), 0u);
  EXPECT_EQ(config.data_dir(), "/d/master");
  EXPECT_EQ(config.pool_token_file(), "/d/token");
}

TEST(LocalPoolTest, TheDaemonsLoaderTakesAStoresFile) {
  config::StoreConfig config;
  const LocalPoolOptions options{
      .stores = 2, .pool_bytes = 64 << 20, .expected_chunk_bytes = 128 << 10};
  const auto loaded =
      LoadConfig(StoreToml(options, "/d", "/s", 1, "127.0.0.1:9"), "store.toml", {}, &config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.master_address(), "127.0.0.1:9");
  EXPECT_EQ(config.data_dir(), "/d/store-1");
  EXPECT_EQ(config.segment_dir(), "/s/store-1");
  EXPECT_EQ(config.expected_chunk_bytes(), uint64_t{128} << 10);
  ASSERT_EQ(config.segment_size(), 1);
  EXPECT_EQ(config.segment(0).size_bytes(), uint64_t{32} << 20);
}

TEST(LocalPoolTest, SaysWhereItLookedForAProgram) {
  const absl::Status status = FindProgram("cistern-none", "master", "/nonexistent").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/nonexistent/cistern-none nor /nonexistent/master/cistern-none"));
}

TEST(LocalPoolTest, LeavesNothingBehindWhenADaemonCannotStart) {
  const std::string parent = testing::TempDir() + "/lp" + std::to_string(getpid());
  ASSERT_EQ(mkdir(parent.c_str(), 0700), 0);
  const auto pool = LocalPool::Start(
      {.bin_dir = "/nonexistent", .work_parent = parent, .segment_parent = parent}, Clock::Real());
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(rmdir(parent.c_str()), 0);  // fails unless it is empty
}

}  // namespace
}  // namespace cistern::pool
