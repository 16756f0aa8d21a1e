#include "master/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/config.h"

namespace cistern::master {
namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

config::MasterConfig Load(Overrides overrides) {
  overrides.emplace_back("data_dir", "/nowhere");
  config::MasterConfig config;
  const auto loaded = LoadConfig("", "test", overrides, &config);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return config;
}

// The message of a refusal; "" when it passes.
std::string Refusal(const Overrides& overrides) {
  const absl::Status status = CheckSettings(Load(overrides));
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(SettingsTest, DefaultsPass) { EXPECT_EQ(Refusal({}), ""); }

TEST(SettingsTest, LowWatermarkMustBeBelowTheHighOne) {
  EXPECT_EQ(Refusal({{"low_watermark", "0.9"}, {"high_watermark", "0.9"}}),
            "low_watermark (0.9) must be below high_watermark (0.9)");
}

TEST(SettingsTest, LeaseMayNotExceedTheLongest) {
  EXPECT_EQ(Refusal({{"lease", "20s"}, {"max_lease", "10s"}}),
            "lease (20000 ms) must not be longer than max_lease (10000 ms)");
  EXPECT_EQ(Refusal({{"lease", "10s"}, {"max_lease", "10s"}}), "");
}

TEST(SettingsTest, SilenceLimitsMustAscend) {
  EXPECT_EQ(Refusal({{"suspect_after", "10s"}, {"dead_after", "10s"}}),
            "suspect_after must be shorter than dead_after");
  EXPECT_NE(Refusal({{"suspect_after", "11s"}, {"dead_after", "10s"}}), "");
  EXPECT_NE(Refusal({{"heartbeat", "4s"}, {"suspect_after", "3s"}}), "");
  EXPECT_NE(Refusal({{"dead_after", "5m"}, {"forget_after", "1m"}}), "");
}

TEST(SettingsTest, OtherHostsNeedAToken) {
  for (const char* address : {"0.0.0.0", "192.168.1.1", "::", "example.org"}) {
    EXPECT_NE(Refusal({{"listen_address", address}}).find("pool_token_file"), std::string::npos)
        << address;
    EXPECT_EQ(Refusal({{"listen_address", address}, {"pool_token_file", "/t"}}), "") << address;
  }
  for (const char* address : {"127.0.0.1", "127.8.0.1", "::1", "localhost"}) {
    EXPECT_EQ(Refusal({{"listen_address", address}}), "") << address;
  }
}

TEST(SettingsTest, PortsMustDifferUnlessFree) {
  EXPECT_EQ(Refusal({{"data_port", "7000"}, {"grpc_port", "7000"}}),
            "data_port and grpc_port must differ");
  EXPECT_EQ(Refusal({{"data_port", "0"}, {"grpc_port", "0"}}), "");
}

TEST(SettingsTest, CoreOptionsCarryEverySetting) {
  const MasterOptions options = CoreOptions(Load({{"high_watermark", "0.8"},
                                                  {"low_watermark", "0.7"},
                                                  {"lease", "1s"},
                                                  {"max_lease", "2s"},
                                                  {"lease_share", "0.25"},
                                                  {"in_progress", "3s"},
                                                  {"delta_flush", "4ms"},
                                                  {"heartbeat", "50ms"},
                                                  {"suspect_after", "6s"},
                                                  {"dead_after", "7s"},
                                                  {"forget_after", "8m"},
                                                  {"max_chunks", "9000"},
                                                  {"max_in_progress", "10000"},
                                                  {"max_leases", "11000"}}));
  EXPECT_EQ(options.high_watermark, 0.8);
  EXPECT_EQ(options.low_watermark, 0.7);
  EXPECT_EQ(options.lease, absl::Seconds(1));
  EXPECT_EQ(options.max_lease, absl::Seconds(2));
  EXPECT_EQ(options.lease_share, 0.25);
  EXPECT_EQ(options.in_progress, absl::Seconds(3));
  EXPECT_EQ(options.delta_flush, absl::Milliseconds(4));
  EXPECT_EQ(options.heartbeat, absl::Milliseconds(50));
  EXPECT_EQ(options.suspect_after, absl::Seconds(6));
  EXPECT_EQ(options.dead_after, absl::Seconds(7));
  EXPECT_EQ(options.forget_after, absl::Minutes(8));
  EXPECT_EQ(options.max_chunks, 9000u);
  EXPECT_EQ(options.max_in_progress, 10'000u);
  EXPECT_EQ(options.max_leases, 11'000u);
}

TEST(SettingsTest, RunDirIsTheDataDirUnlessSet) {
  EXPECT_EQ(RunDir(Load({})), "/nowhere");
  EXPECT_EQ(RunDir(Load({{"run_dir", "/run/cistern"}})), "/run/cistern");
}

}  // namespace
}  // namespace cistern::master
