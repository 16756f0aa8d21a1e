#include "master/state_store_rocksdb.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/key_hash.h"

namespace cistern::master {
namespace {

class RocksStateStoreTest : public ::testing::Test {
 protected:
  RocksStateStoreTest() : dir_(::testing::TempDir() + "state_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
  }
  ~RocksStateStoreTest() override { std::filesystem::remove_all(dir_); }

  static PoolIdentity Pool() {
    PoolIdentity pool;
    pool.pool_id = PoolId::ParseHex("000102030405060708090a0b0c0d0e0f").value();
    pool.birth_unix_ms = 1'700'000'000'123;
    return pool;
  }
  static wire::NamespaceInfo Info(const std::string& name) {
    wire::NamespaceInfo info;
    info.set_name(name);
    info.set_fingerprint("fp");
    info.set_id(std::string(DeriveNamespaceId("", name, "fp").view()));
    info.mutable_options()->set_ttl_ms(7);
    return info;
  }
  std::unique_ptr<RocksStateStore> Open() {
    auto store = RocksStateStore::Open(dir_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Writes one raw record behind the class's back.
  void PutRaw(const std::string& key, const std::string& value) {
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::Options(), dir_ + "/state", &db).ok());
    EXPECT_TRUE(db->Put(rocksdb::WriteOptions(), key, value).ok());
    delete db;
  }

  std::string dir_;
};

TEST_F(RocksStateStoreTest, OpenOfAnEmptyFolderIsNotFound) {
  EXPECT_FALSE(RocksStateStore::Exists(dir_));
  EXPECT_TRUE(absl::IsNotFound(RocksStateStore::Open(dir_).status()));
}

TEST_F(RocksStateStoreTest, CreateRefusesAFolderThatHoldsAPool) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  PoolIdentity other = Pool();
  other.pool_id.bytes[0] = 0xFF;
  const absl::Status again = RocksStateStore::Create(dir_, other);
  EXPECT_TRUE(absl::IsAlreadyExists(again));
  EXPECT_NE(again.message().find("000102030405060708090a0b0c0d0e0f"), absl::string_view::npos);
  EXPECT_EQ(Open()->pool().pool_id, Pool().pool_id);
}

// RocksDB would end the process.
TEST_F(RocksStateStoreTest, WithoutRoomItIsNotOpened) {
  const std::string full = dir_ + "/full";
  ASSERT_EQ(mkdir(full.c_str(), 0700), 0);
  if (mount("tmpfs", full.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "SKIPPED: cannot mount a small file system here";
  }
  const absl::Status status = RocksStateStore::Create(full, Pool());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find(full), absl::string_view::npos) << status;
  EXPECT_EQ(umount(full.c_str()), 0);
}

TEST_F(RocksStateStoreTest, FlushedChangesSurviveReopening) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  {
    auto store = Open();
    EXPECT_EQ(store->Load()->epoch, Epoch(0));
    ASSERT_TRUE(store->SaveEpoch(Epoch(5)).ok());
    ASSERT_TRUE(store->SaveNamespace(Info("a")).ok());
    ASSERT_TRUE(store->SaveNamespace(Info("b")).ok());
    ASSERT_TRUE(store->SaveNamespace(Info("c")).ok());
    ASSERT_TRUE(store->RemoveNamespace(DeriveNamespaceId("", "b", "fp")).ok());
    EXPECT_TRUE(store->HasUnwritten());
    ASSERT_TRUE(store->Flush().ok());
    EXPECT_FALSE(store->HasUnwritten());
  }
  auto store = Open();
  EXPECT_EQ(store->pool().birth_unix_ms, 1'700'000'000'123u);
  auto state = store->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->epoch, Epoch(5));
  ASSERT_EQ(state->namespaces.size(), 2u);
  std::vector<std::string> names = {state->namespaces[0].name(), state->namespaces[1].name()};
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(state->namespaces[0].options().ttl_ms(), 7u);
  EXPECT_EQ(state->namespaces[0].fingerprint(), "fp");
}

TEST_F(RocksStateStoreTest, WhatIsStillQueuedIsWrittenAtTheEnd) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  { ASSERT_TRUE(Open()->SaveEpoch(Epoch(9)).ok()); }
  EXPECT_EQ(Open()->Load()->epoch, Epoch(9));
}

TEST_F(RocksStateStoreTest, LaterChangeOfOneKeyWins) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  auto store = Open();
  ASSERT_TRUE(store->SaveNamespace(Info("a")).ok());
  ASSERT_TRUE(store->RemoveNamespace(DeriveNamespaceId("", "a", "fp")).ok());
  ASSERT_TRUE(store->SaveNamespace(Info("a")).ok());
  ASSERT_TRUE(store->Flush().ok());
  EXPECT_EQ(store->Load()->namespaces.size(), 1u);
}

TEST_F(RocksStateStoreTest, SecondOpenerIsRefusedWithAClearMessage) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  auto store = Open();
  const absl::Status second = RocksStateStore::Open(dir_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_NE(second.message().find("in use by another cistern-master"), absl::string_view::npos)
      << second;
}

TEST_F(RocksStateStoreTest, ValueOfANewerFormatIsRefused) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  PutRaw("epoch", std::string("\x02", 1) + std::string(8, '\0'));
  auto store = Open();
  const absl::Status status = store->Load().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("newer cistern-master"), absl::string_view::npos);
}

TEST_F(RocksStateStoreTest, DamagedRecordsAreDataLoss) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  PutRaw(std::string("n/") + std::string(16, 'x'), std::string("\x01", 1) + "not a protobuf");
  EXPECT_TRUE(absl::IsDataLoss(Open()->Load().status()));
}

TEST_F(RocksStateStoreTest, RecordUnderAnotherIdIsDataLoss) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  PutRaw(std::string("n/") + std::string(16, 'x'),
         std::string("\x01", 1) + Info("a").SerializeAsString());
  EXPECT_TRUE(absl::IsDataLoss(Open()->Load().status()));
}

TEST_F(RocksStateStoreTest, ReservedRecordsAreLeftAlone) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  PutRaw("d/" + std::string(16, 'x'), "whatever a later version keeps here");
  auto state = Open()->Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->namespaces.empty());
}

}  // namespace
}  // namespace cistern::master
