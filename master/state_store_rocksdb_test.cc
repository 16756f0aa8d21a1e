#include "master/state_store_rocksdb.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/eventually.h"
#include "base/key_hash.h"
#include "base/small_disk.h"

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
  const SmallDisk disk(dir_ + "/full", 1);
  if (!disk.mounted()) GTEST_SKIP() << "SKIPPED: cannot mount a small file system here";
  const absl::Status status = RocksStateStore::Create(disk.path(), Pool());
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find(disk.path()), absl::string_view::npos) << status;
}

// Of one thing each: what is on disk does not wait for what cannot be written.
TEST_F(RocksStateStoreTest, OnAFullDiskOnlyWhatIsNotWrittenIsRefusedUntilThereIsRoom) {
  SmallDisk disk(dir_ + "/disk", 12);
  if (!disk.mounted()) GTEST_SKIP() << "SKIPPED: cannot mount a small file system here";
  ASSERT_TRUE(RocksStateStore::Create(disk.path(), Pool()).ok());
  auto opened = RocksStateStore::Open(disk.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  RocksStateStore& store = **opened;
  const auto durable = [&store](const wire::NamespaceInfo& info) {
    absl::Status out = absl::UnknownError("never answered");
    store.WhenNamespaceDurable(NamespaceId::FromBytes(info.id().data()),
                               [&out](absl::Status status) { out = std::move(status); });
    store.Flush().IgnoreError();  // by its end the other has been answered too
    return out;
  };
  ASSERT_TRUE(store.SaveNamespace(Info("first")).ok());
  ASSERT_TRUE(store.Flush().ok());
  ASSERT_TRUE(disk.Fill());
  const wire::NamespaceInfo refused = Info("second");
  ASSERT_TRUE(store.SaveNamespace(refused).ok());
  const absl::Status status = store.Flush();
  ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::IsResourceExhausted(store.last_write())) << store.last_write();
  EXPECT_TRUE(durable(Info("first")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(durable(refused)));
  EXPECT_TRUE(store.NamespaceUnwritten(NamespaceId::FromBytes(refused.id().data())));
  EXPECT_FALSE(store.NamespaceUnwritten(NamespaceId::FromBytes(Info("first").id().data())));
  ASSERT_TRUE(disk.MakeRoom());
  // Nobody asks for it.
  EXPECT_TRUE(Eventually([&] { return store.last_write().ok(); })) << store.last_write();
  opened->reset();
  opened = RocksStateStore::Open(disk.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->Load()->namespaces.size(), 2u);
}

// The disk fills while RocksDB itself writes.
TEST_F(RocksStateStoreTest, WhatFailedHalfWayIsWrittenAsAWholeWhenThereIsRoom) {
  SmallDisk disk(dir_ + "/disk", 12);
  if (!disk.mounted()) GTEST_SKIP() << "SKIPPED: cannot mount a small file system here";
  ASSERT_TRUE(RocksStateStore::Create(disk.path(), Pool()).ok());
  auto opened = RocksStateStore::Open(disk.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  RocksStateStore& store = **opened;
  ASSERT_TRUE(store.SaveEpoch(Epoch(3)).ok());
  ASSERT_TRUE(store.Flush().ok());
  ASSERT_TRUE(disk.Fill(/*but_mib=*/4));
  constexpr size_t kNamespaces = 1'500;  // 6 MiB in one batch
  for (size_t i = 0; i < kNamespaces; ++i) {
    wire::NamespaceInfo info = Info("ns-" + std::to_string(i));
    info.set_fingerprint(std::string(4096, 'f'));
    ASSERT_TRUE(store.SaveNamespace(info).ok());
  }
  const absl::Status status = store.Flush();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(store.last_write().ok());
  ASSERT_TRUE(disk.MakeRoom());
  EXPECT_TRUE(Eventually([&] { return store.last_write().ok(); })) << store.last_write();
  opened->reset();
  opened = RocksStateStore::Open(disk.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->Load()->namespaces.size(), kNamespaces);
  EXPECT_EQ((*opened)->Load()->epoch, Epoch(3));
}

TEST_F(RocksStateStoreTest, WhatNobodyWaitsForIsWrittenAllTheSame) {
  ASSERT_TRUE(RocksStateStore::Create(dir_, Pool()).ok());
  auto store = Open();
  ASSERT_TRUE(store->SaveNamespace(Info("a")).ok());
  EXPECT_TRUE(
      Eventually([&] { return !store->NamespaceUnwritten(DeriveNamespaceId("", "a", "fp")); }));
  EXPECT_EQ(store->Load()->namespaces.size(), 1u);
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
    ASSERT_TRUE(store->Flush().ok());
    EXPECT_FALSE(store->NamespaceUnwritten(DeriveNamespaceId("", "a", "fp")));
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
