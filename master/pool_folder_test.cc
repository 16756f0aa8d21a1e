#include "master/pool_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace cistern::master {
namespace {

class PoolFolderTest : public ::testing::Test {
 protected:
  PoolFolderTest() : dir_(::testing::TempDir() + "pool_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    config_.set_data_dir(dir_ + "/data");
  }
  ~PoolFolderTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  config::MasterConfig config_;
  FakeClock clock_;
};

TEST_F(PoolFolderTest, FirstStartInAnAbsentOrEmptyFolderMakesAPool) {
  const auto absent = OpenPool(config_, clock_);
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_FALSE((*absent)->pool().pool_id.IsZero());
  EXPECT_EQ((*absent)->pool().birth_unix_ms, 1'700'000'000'000u);  // the fake clock's time

  config_.set_data_dir(dir_ + "/empty");
  std::filesystem::create_directory(config_.data_dir());
  const auto empty = OpenPool(config_, clock_);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_NE((*empty)->pool().pool_id, (*absent)->pool().pool_id);
}

TEST_F(PoolFolderTest, SecondStartFindsTheSamePool) {
  const PoolId first = (*OpenPool(config_, clock_))->pool().pool_id;
  EXPECT_EQ((*OpenPool(config_, clock_))->pool().pool_id, first);
}

TEST_F(PoolFolderTest, FolderWithOtherFilesIsRefusedButInitMakesAPoolThere) {
  std::filesystem::create_directory(config_.data_dir());
  std::ofstream(config_.data_dir() + "/photo.jpg") << "x";
  const absl::Status refused = OpenPool(config_, clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("--init"), absl::string_view::npos);
  const auto made = InitPool(config_, clock_);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->pool_created);
  EXPECT_TRUE(OpenPool(config_, clock_).ok());
}

TEST_F(PoolFolderTest, InitMakesATokenOf32RandomBytesInHexWithMode0600) {
  config_.set_pool_token_file(dir_ + "/token");
  const auto made = InitPool(config_, clock_);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->token_created);
  struct stat st;
  ASSERT_EQ(stat(config_.pool_token_file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  const auto token = ReadToken(config_);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->size(), 64u);
  EXPECT_EQ(token->find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST_F(PoolFolderTest, InitChangesNothingThatIsThere) {
  config_.set_pool_token_file(dir_ + "/token");
  const auto first = InitPool(config_, clock_);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string token = *ReadToken(config_);
  const auto second = InitPool(config_, clock_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(second->pool_created);
  EXPECT_FALSE(second->token_created);
  EXPECT_EQ(second->pool_id, first->pool_id);
  EXPECT_EQ(*ReadToken(config_), token);
}

TEST_F(PoolFolderTest, MissingTokenFileIsNamedWithTheWayOut) {
  config_.set_pool_token_file(dir_ + "/token");
  const absl::Status status = ReadToken(config_).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.message().find(config_.pool_token_file()), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("--init"), absl::string_view::npos) << status;
}

TEST_F(PoolFolderTest, NoTokenFileMeansNoToken) {
  const auto token = ReadToken(config_);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(*token, "");
}

}  // namespace
}  // namespace cistern::master
