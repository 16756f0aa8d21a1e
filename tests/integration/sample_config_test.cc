// The sample configuration files are what the daemons take.
#include "base/config.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace cistern {
namespace {

TEST(SampleConfigTest, TheMasterTakesItsFile) {
  config::MasterConfig config;
  const auto loaded = LoadConfigFile("deploy/config/master.toml", {}, &config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.listen_address(), "10.0.0.1");
  EXPECT_EQ(config.data_port(), 7600u);
  EXPECT_FALSE(config.pool_token_file().empty());
  EXPECT_TRUE(config.http_enabled());
  EXPECT_EQ(config.http_port(), 7602u);
}

TEST(SampleConfigTest, AStoreTakesItsFile) {
  config::StoreConfig config;
  const auto loaded = LoadConfigFile("deploy/config/store.toml", {}, &config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.master_address(), "10.0.0.1:7601");
  ASSERT_EQ(config.segment_size(), 1);
  EXPECT_EQ(config.segment(0).size_bytes(), uint64_t{64} << 30);
}

TEST(SampleConfigTest, AClientTakesItsFile) {
  config::ClientConfig config;
  const auto loaded = LoadConfigFile("deploy/config/client.toml", {}, &config);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(config.master_address(), "10.0.0.1:7600");
}

}  // namespace
}  // namespace cistern
