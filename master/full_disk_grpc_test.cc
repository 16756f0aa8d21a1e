// A master whose disk fills while it runs: real ports, a real file system without room.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/ops/http_testing.h"
#include "base/small_disk.h"
#include "master/daemon_fixture_grpc.h"
#include "proto/admin.grpc.pb.h"

namespace cistern::master {
namespace {

using ::testing::HasSubstr;

class FullDiskTest : public DaemonTest {
 protected:
  FullDiskTest() : disk_(dir_ + "/disk", 12) {
    SetLogSink([this](LogLevel, std::string_view, int, std::string_view text) {
      MutexLock lock(mutex_);
      lines_.emplace_back(text);
    });
  }
  ~FullDiskTest() override {
    daemon_ = nullptr;  // before its disk
    SetLogSink(nullptr);
  }

  nlohmann::json Health(int* status) const {
    const HttpReply reply = HttpGet(daemon_->http_port(), "/healthz");
    *status = reply.status;
    return nlohmann::json::parse(reply.body);
  }
  // Whether /healthz says this, and the status line with it.
  bool Says(int want, const std::string& status) const {
    int got = 0;
    return Health(&got)["status"] == status && got == want;
  }
  std::vector<std::string> Listed() const {
    const auto stub = admin::Admin::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", daemon_->grpc_port()), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    admin::StatsReply reply;
    const grpc::Status status = stub->Stats(&context, admin::StatsRequest(), &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<std::string> names;
    for (const admin::NamespaceStats& ns : reply.namespaces()) names.push_back(ns.name());
    std::sort(names.begin(), names.end());
    return names;
  }
  // Log lines with `text` in them.
  int Lines(const std::string& text) {
    MutexLock lock(mutex_);
    return static_cast<int>(
        std::count_if(lines_.begin(), lines_.end(),
                      [&](const std::string& line) { return absl::StrContains(line, text); }));
  }

  SmallDisk disk_;
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(FullDiskTest, WhatIsOpenGoesOnTheRestIsRefusedAndItRecovers) {
  if (!disk_.mounted()) GTEST_SKIP() << "SKIPPED: cannot mount a small file system here";
  config::MasterConfig config = Config();
  config.set_data_dir(disk_.path() + "/data");
  ASSERT_TRUE(StartDaemon(config).ok());
  auto client = BoundClient();
  auto store = ConnectedStore();
  ASSERT_TRUE(client->Open("also").ok());
  std::vector<std::string> durable = {"also", "ns"};
  ASSERT_TRUE(disk_.Fill());
  const std::string refused = "refused";
  const absl::Status refusal = client->Open(refused).status();
  ASSERT_TRUE(absl::IsResourceExhausted(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("no space left"));

  EXPECT_TRUE(Eventually([&] { return Lines("durable state cannot be saved") == 1; }));
  EXPECT_TRUE(Says(503, "cannot_save"));
  int status = 0;
  EXPECT_THAT(Health(&status)["problem"].get<std::string>(), HasSubstr(disk_.path()));
  EXPECT_EQ(HttpGet(daemon_->http_port(), "/livez").status, 200);
  EXPECT_EQ(
      MetricValue(HttpGet(daemon_->http_port(), "/metrics").body, "cistern_master_state_saved"), 0);
  // What is on disk is answered, while another open is refused, by whomever it is asked.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(client->Open("other", "fp").status()));
    EXPECT_TRUE(client->Open("ns").ok());
    EXPECT_TRUE(Client()->Open("also").ok());
  }
  // Refused names are not there, and free.
  EXPECT_EQ(Listed(), durable);
  EXPECT_TRUE(absl::IsResourceExhausted(client->Open("other", "another fingerprint").status()));
  // Chunks go on, and so do stores that come back.
  store->Commit(0, Ids(0, 4), kChunk);
  EXPECT_TRUE(Eventually([&] { return client->Present(Ids(0, 4)) == 4; }));
  store->Disconnect();
  store = ConnectedStore();
  EXPECT_EQ(Lines("durable state cannot be saved"), 1);

  ASSERT_TRUE(disk_.MakeRoom());
  EXPECT_TRUE(Eventually([&] { return Says(200, "serving"); }));
  EXPECT_TRUE(Eventually([&] { return Lines("durable state is saved again") == 1; }));
  EXPECT_EQ(Listed(), durable);
  EXPECT_TRUE(client->Open(refused, "another fingerprint").ok());
  durable.push_back(refused);
  std::sort(durable.begin(), durable.end());
  EXPECT_EQ(Listed(), durable);
  store->Disconnect();
  client = nullptr;
  daemon_ = nullptr;
  ASSERT_TRUE(StartDaemon(config).ok());
  EXPECT_EQ(Listed(), durable);
}

}  // namespace
}  // namespace cistern::master
