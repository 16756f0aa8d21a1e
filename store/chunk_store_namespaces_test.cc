// The store's list of namespaces: indexes that are given to others, options that begin anew.
#include <string>

#include "gtest/gtest.h"
#include "store/chunk_store.h"
#include "store/chunk_store_testing.h"

namespace cistern::store {
namespace {

class NamespaceTableTest : public ChunkStoreTestBase {
 protected:
  void SetUp() override { Open(); }  // "model" is bound: one index is in use
  // Binds as many as are left, and lets go of them again.
  void FillUp() {
    for (uint32_t i = 1; i < NamespaceIndex::kMaxCount; ++i) {
      const auto ns = store_->BindNamespace(TestNamespace("filler " + std::to_string(i)));
      ASSERT_TRUE(ns.ok()) << ns.status();
      store_->UnbindNamespace(*ns);
    }
  }
};

TEST_F(NamespaceTableTest, UnusedOnesMakeRoomForNewOnes) {
  ASSERT_NE(Put(1, 4096), Version(0));
  store_->log().Ack(store_->log().range().next);
  const NamespaceIndex model = ns_;
  FillUp();
  // All indexes have been taken; none but the first is in use.
  const auto fresh = store_->BindNamespace(TestNamespace("fresh"));
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_LT(fresh->value, NamespaceIndex::kMaxCount);
  EXPECT_NE(*fresh, model);
  EXPECT_TRUE(HasBytes(1, 4096));
  ns_ = *fresh;
  EXPECT_FALSE(Has(1));
  EXPECT_NE(Put(2, 4096), Version(0));
  EXPECT_EQ(store_->NamespaceAt(*fresh).info.name(), "fresh");
}

TEST_F(NamespaceTableTest, BoundOnesAndThoseWithChunksKeepTheirIndex) {
  FillUp();
  // 16,383 more that are bound and stay so: every index but the first changes hands.
  for (uint32_t i = 1; i < NamespaceIndex::kMaxCount; ++i) {
    ASSERT_TRUE(store_->BindNamespace(TestNamespace("bound " + std::to_string(i))).ok()) << i;
  }
  const auto none = store_->BindNamespace(TestNamespace("one too many"));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->NamespaceAt(ns_).info.name(), "model");
  store_->UnbindNamespace(*store_->FindNamespace(TestNamespace("bound 77").id));
  EXPECT_TRUE(store_->BindNamespace(TestNamespace("one too many")).ok());
  EXPECT_FALSE(store_->FindNamespace(TestNamespace("bound 77").id).has_value());
}

TEST_F(NamespaceTableTest, RecordsThatAreNotAcknowledgedKeepTheirNamespacesIndex) {
  ns_ = *store_->BindNamespace(TestNamespace("gone"));
  ASSERT_NE(Put(1, 4096), Version(0));
  ASSERT_EQ(store_->Remove(ns_, NameOf(1), Version(0), wire::CAUSE_REMOVED), wire::CHUNK_OK);
  store_->UnbindNamespace(ns_);
  const NamespaceIndex gone = ns_;
  for (uint32_t i = 2; i < NamespaceIndex::kMaxCount; ++i) {
    ASSERT_TRUE(store_->BindNamespace(TestNamespace("bound " + std::to_string(i))).ok());
  }
  // Its two records are still to be sent.
  EXPECT_FALSE(store_->BindNamespace(TestNamespace("next")).ok());
  const uint64_t serial = store_->NamespaceSerial(gone);
  store_->log().Ack(store_->log().range().next);
  const auto next = store_->BindNamespace(TestNamespace("next"));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(*next, gone);
  EXPECT_NE(store_->NamespaceSerial(gone), serial);
}

TEST_F(NamespaceTableTest, DroppedAndEmptyItTakesTheNextOpenersOptions) {
  wire::NamespaceOptions options;
  options.set_mutable_chunks(true);
  ASSERT_NE(Put(1, 4096), Version(0));
  ChunkRef reader = store_->Acquire(ns_, NameOf(1), now_);
  store_->DropNamespace(TestNamespace("model").id);
  EXPECT_EQ(*store_->BindNamespace(TestNamespace("model", options)), ns_);
  EXPECT_TRUE(store_->NamespaceOptionsOf(ns_).mutable_chunks());
  // The reader's bytes are its own until it ends.
  EXPECT_EQ(std::string(reader.payload().data(), 4096), PatternBytes(1, 4096));
  reader.Release();
  // Once it holds something again they are fixed.
  ASSERT_NE(Put(2, 4096), Version(0));
  EXPECT_EQ(*store_->BindNamespace(TestNamespace("model")), ns_);
  EXPECT_TRUE(store_->NamespaceOptionsOf(ns_).mutable_chunks());
}

TEST_F(NamespaceTableTest, DroppedWhileSomethingIsPutItKeepsItsOptions) {
  wire::NamespaceOptions options;
  options.set_mutable_chunks(true);
  PutAnswer answer = Begin(1, 4096);
  store_->DropNamespace(TestNamespace("model").id);
  EXPECT_EQ(*store_->BindNamespace(TestNamespace("model", options)), ns_);
  EXPECT_FALSE(store_->NamespaceOptionsOf(ns_).mutable_chunks());
}

}  // namespace
}  // namespace cistern::store
