#include "store/shm_listener.h"

#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/test_util.h"

namespace cistern::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::ShmConfig Config(const std::string& uids, const std::string& gids) {
  config::StoreConfig store;
  EXPECT_OK(LoadConfig("data_dir = '/d'\n[[segment]]\nsize = '8MiB'\n", "(test)", {}, &store));
  store.mutable_shm()->set_allowed_uids(uids);
  store.mutable_shm()->set_allowed_gids(gids);
  return store.shm();
}

TEST(ShmListenerTest, DefaultsAreTheStoresOwnUserAndOneMebibyte) {
  const TempDir folder;
  const config::ShmConfig config = Config("", "");
  EXPECT_TRUE(config.enabled());
  EXPECT_OK(CheckShmConfig(config));
  ASSERT_OK_AND_ASSIGN(const auto options, ShmOptions(config, folder.path()));
  EXPECT_THAT(options.allowed_uids, IsEmpty());
  EXPECT_THAT(options.allowed_gids, IsEmpty());
  EXPECT_EQ(options.ring_bytes, 2u << 20);
  EXPECT_EQ(options.max_mapped_bytes, uint64_t{2} << 30);
}

TEST(ShmListenerTest, ListsOfNumbersAreRead) {
  const TempDir folder;
  ASSERT_OK_AND_ASSIGN(const auto options, ShmOptions(Config("1000, 1001", " 7 "), folder.path()));
  EXPECT_THAT(options.allowed_uids, ElementsAre(1000, 1001));
  EXPECT_THAT(options.allowed_gids, ElementsAre(7));
}

TEST(ShmListenerTest, WhatIsNoNumberIsRefusedByItsKey) {
  for (const char* bad : {"root", "1000,", "-1", "1000 1001", "99999999999"}) {
    EXPECT_THAT(CheckShmConfig(Config(bad, "")),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shm.allowed_uids")))
        << bad;
    EXPECT_THAT(CheckShmConfig(Config("", bad)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shm.allowed_gids")))
        << bad;
  }
}

TEST(ShmListenerTest, RingsAreWholePages) {
  config::ShmConfig config = Config("", "");
  config.set_ring_bytes((256 << 10) + 1);
  EXPECT_THAT(CheckShmConfig(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shm.ring")));
}

TEST(ShmListenerTest, SocketsPathHoldsInEveryProcess) {
  const TempDir folder;
  ASSERT_EQ(mkdir((folder / "a").c_str(), 0700), 0);
  ASSERT_OK_AND_ASSIGN(const auto options, ShmOptions(Config("", ""), folder / "a/../a/."));
  EXPECT_EQ(options.socket_path, folder / "a/store.sock");
  EXPECT_THAT(ShmOptions(Config("", ""), folder / "missing"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("run_dir")));
}

}  // namespace
}  // namespace cistern::store
