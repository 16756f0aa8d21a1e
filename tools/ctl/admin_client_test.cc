// Against a gRPC server in the same process.
#include "tools/ctl/admin_client.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/admin.grpc.pb.h"

namespace cistern::ctl {
namespace {

using ::testing::HasSubstr;

constexpr char kPool[] = "000102030405060708090a0b0c0d0e0f";
// HMAC-SHA-256 of "admin" and the pool id's bytes under 32 times 'k', by the openssl command.
constexpr char kAuthorization[] =
    "Bearer 2e14ac7105b04d96d4610c78db38e771c2fddcfb869da02cd2d08144d23bca7f";

class FakeMaster final : public admin::Admin::Service {
 public:
  grpc::Status Version(grpc::ServerContext*, const admin::VersionRequest*,
                       admin::VersionReply* reply) override {
    ++versions;
    reply->set_pool_id(kPool);
    return grpc::Status::OK;
  }
  grpc::Status Stats(grpc::ServerContext* context, const admin::StatsRequest*,
                     admin::StatsReply* reply) override {
    const auto& metadata = context->client_metadata();
    const auto it = metadata.find("authorization");
    authorization = it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
    if (!refuse.ok()) return refuse;
    reply->mutable_pool()->set_chunk_count(5);
    return grpc::Status::OK;
  }
  int versions = 0;
  std::string authorization;
  grpc::Status refuse;
};

class AdminClientTest : public testing::Test {
 protected:
  AdminClientTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&master_);
    server_ = builder.BuildAndStart();
    connection_.master = "127.0.0.1:" + std::to_string(port_);
    token_path_ = testing::TempDir() + "/token" + std::to_string(getpid());
  }
  ~AdminClientTest() override {
    server_->Shutdown();
    unlink(token_path_.c_str());
  }
  void WriteToken(mode_t mode) {
    std::ofstream(token_path_) << std::string(32, 'k') << "\n";
    chmod(token_path_.c_str(), mode);
    connection_.token_file = token_path_;
  }

  FakeMaster master_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Connection connection_;
  std::string token_path_;
};

TEST_F(AdminClientTest, WithoutATokenItSendsNoAuthorisation) {
  const auto client = AdminClient::Make(connection_, absl::Seconds(10));
  ASSERT_TRUE(client.ok()) << client.status();
  const auto stats = (*client)->Stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->pool().chunk_count(), 5u);
  EXPECT_EQ(master_.authorization, "");
}

TEST_F(AdminClientTest, LearnsThePoolIdOnceAndProvesTheToken) {
  WriteToken(0600);
  const auto client = AdminClient::Make(connection_, absl::Seconds(10));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Stats().ok());
  ASSERT_TRUE((*client)->Stats().ok());
  EXPECT_EQ(master_.authorization, kAuthorization);
  EXPECT_EQ(master_.versions, 1);
}

TEST_F(AdminClientTest, RefusesATokenThatOthersCanRead) {
  WriteToken(0644);
  EXPECT_FALSE(AdminClient::Make(connection_, absl::Seconds(10)).ok());
}

TEST_F(AdminClientTest, NamesTheMasterThatRefusesTheToken) {
  master_.refuse = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "no token");
  const auto client = AdminClient::Make(connection_, absl::Seconds(10));
  const absl::Status status = (*client)->Stats().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr(connection_.master));
}

TEST_F(AdminClientTest, NamesTheMasterThatIsNotThere) {
  server_->Shutdown();
  const auto client = AdminClient::Make(connection_, absl::Seconds(10));
  const absl::Status status = (*client)->Stats().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(connection_.master));
}

TEST_F(AdminClientTest, OtherErrorsPassAsTheyAre) {
  master_.refuse = grpc::Status(grpc::StatusCode::NOT_FOUND, "no such namespace");
  const auto client = AdminClient::Make(connection_, absl::Seconds(10));
  EXPECT_EQ((*client)->Stats().status(), absl::NotFoundError("no such namespace"));
}

}  // namespace
}  // namespace cistern::ctl
