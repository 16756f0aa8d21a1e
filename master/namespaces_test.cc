#include "master/namespaces.h"

#include <string>

#include "base/key_hash.h"
#include "base/test_util.h"
#include "master/core_testing.h"

namespace cistern::master {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NamespaceRegistryTest : public testing::Test {
 protected:
  absl::StatusOr<NamespaceRegistry::Opened> Open(std::string_view name, std::string_view fp,
                                                 uint64_t ttl_ms = 0) {
    wire::NamespaceOptions options;
    options.set_ttl_ms(ttl_ms);
    return registry_.Open("", name, fp, options);
  }
  static wire::NamespaceInfo Info(const std::string& name, const std::string& fp) {
    wire::NamespaceInfo info;
    const NamespaceId id = DeriveNamespaceId("", name, fp);
    info.set_id(id.bytes.data(), id.bytes.size());
    info.set_name(name);
    info.set_fingerprint(fp);
    return info;
  }

  MemoryStateStore state_;
  NamespaceRegistry registry_{state_, 4};
};

TEST_F(NamespaceRegistryTest, FirstOpenerFixesTheOptions) {
  ASSERT_OK_AND_ASSIGN(const auto first, Open("llama", "fp", 5000));
  EXPECT_TRUE(first.created);
  ASSERT_OK_AND_ASSIGN(const auto second, Open("llama", "fp", 9000));
  EXPECT_FALSE(second.created);
  EXPECT_EQ(second.index, first.index);
  EXPECT_EQ(registry_.at(second.index).info.options().ttl_ms(), 5000u);
  EXPECT_EQ(registry_.at(first.index).id, DeriveNamespaceId("", "llama", "fp"));
  ASSERT_EQ(state_.state.namespaces.size(), 1u);
  EXPECT_EQ(state_.state.namespaces[0].options().ttl_ms(), 5000u);
}

TEST_F(NamespaceRegistryTest, AnotherFingerprintIsRefusedWithBothAndAWayOut) {
  ASSERT_OK(Open("llama", "rev-1"));
  EXPECT_THAT(Open("llama", std::string("\x01\xFF", 2)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rev-1"), HasSubstr("hex:01ff"), HasSubstr("another name"),
                             HasSubstr("namespaces rm llama"))));
}

TEST_F(NamespaceRegistryTest, BoundsAreChecked) {
  EXPECT_THAT(Open("", "fp"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Open(std::string(257, 'a'), "fp"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Open(std::string("a\0b", 3), "fp"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Open("a", std::string(4097, 'f')), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Open(std::string(256, 'a'), std::string(4096, 'f')));
  wire::NamespaceOptions options;
  options.set_part_bytes(5000);
  EXPECT_THAT(registry_.Open("", "b", "fp", options), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(registry_.Open("tenant", "b", "fp", {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NamespaceRegistryTest, WithdrawnNameIsFreeAndNothingOfItIsKept) {
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("llama", "rev-1"));
  ASSERT_OK(registry_.Withdraw(opened.index));
  EXPECT_TRUE(registry_.FindByName("", "llama").none());
  EXPECT_TRUE(state_.state.namespaces.empty());
  EXPECT_FALSE(registry_.Confirm(opened.index));
  ASSERT_OK_AND_ASSIGN(const auto again, Open("llama", "rev-2"));
  EXPECT_TRUE(again.created);
  EXPECT_TRUE(registry_.Confirm(again.index));
  // One that was told to somebody stays.
  ASSERT_OK(registry_.Withdraw(again.index));
  EXPECT_EQ(registry_.FindByName("", "llama"), again.index);
  EXPECT_EQ(state_.state.namespaces.size(), 1u);
}

TEST_F(NamespaceRegistryTest, WithdrawnNameThatWasRemovedBeforeIsRememberedAsRemoved) {
  ASSERT_OK(Open("llama", "fp", 5000));
  ASSERT_OK(registry_.Remove("", "llama", /*remember=*/true));
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("llama", "fp", 9000));
  ASSERT_OK(registry_.Withdraw(opened.index));
  EXPECT_TRUE(registry_.at(opened.index).removed);
  ASSERT_EQ(state_.state.namespaces.size(), 1u);
  EXPECT_TRUE(state_.state.namespaces[0].removed());
  EXPECT_EQ(state_.state.namespaces[0].options().ttl_ms(), 5000u);
}

TEST_F(NamespaceRegistryTest, WhatAStoreReportsIsNotWithdrawn) {
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("llama", "fp"));
  ASSERT_OK(registry_.Report(Info("llama", "fp")));
  ASSERT_OK(registry_.Withdraw(opened.index));
  EXPECT_EQ(registry_.FindByName("", "llama"), opened.index);
}

TEST_F(NamespaceRegistryTest, CountIsBounded) {
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_OK(Open(name, "fp"));
  EXPECT_THAT(Open("e", "fp"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(NamespaceRegistryTest, StoreReportOfAFreeNameTakesIt) {
  ASSERT_OK_AND_ASSIGN(const NamespaceIndex index, registry_.Report(Info("llama", "fp")));
  EXPECT_EQ(registry_.FindByName("", "llama"), index);
  EXPECT_FALSE(registry_.at(index).info.conflict());
  EXPECT_EQ(state_.state.namespaces.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("llama", "fp"));
  EXPECT_FALSE(opened.created);
}

TEST_F(NamespaceRegistryTest, StoreReportOfAnotherFingerprintMarksTheConflict) {
  ASSERT_OK_AND_ASSIGN(const auto opened, Open("llama", "rev-1"));
  ASSERT_OK_AND_ASSIGN(const NamespaceIndex reported, registry_.Report(Info("llama", "rev-2")));
  EXPECT_NE(reported, opened.index);
  EXPECT_TRUE(registry_.at(opened.index).info.conflict());
  EXPECT_TRUE(registry_.at(reported).info.conflict());
  EXPECT_EQ(registry_.FindByName("", "llama"), opened.index) << "the name stays where it was";
  EXPECT_EQ(registry_.FindById(DeriveNamespaceId("", "llama", "rev-2")), reported);
}

TEST_F(NamespaceRegistryTest, ReportWithAnIdThatIsNotDerivedIsRefused) {
  wire::NamespaceInfo info = Info("llama", "fp");
  info.set_fingerprint("other");
  EXPECT_THAT(registry_.Report(info), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NamespaceRegistryTest, RemovedNameIsFreeForAnotherFingerprint) {
  ASSERT_OK_AND_ASSIGN(const auto old, Open("llama", "rev-1"));
  ASSERT_OK(registry_.Remove("", "llama"));
  EXPECT_TRUE(state_.state.namespaces.empty());
  EXPECT_TRUE(registry_.FindByName("", "llama").none());
  ASSERT_OK(registry_.Report(Info("llama", "rev-1")));
  EXPECT_TRUE(registry_.FindByName("", "llama").none()) << "a store's leftovers do not revive it";
  ASSERT_OK_AND_ASSIGN(const auto fresh, Open("llama", "rev-2"));
  EXPECT_NE(fresh.index, old.index);
  EXPECT_THAT(registry_.Remove("", "absent"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(NamespaceRegistryTest, RestoreBringsNamesAndOptionsBack) {
  ASSERT_OK(Open("llama", "fp", 5000));
  NamespaceRegistry again(state_, 4);
  ASSERT_OK(again.Restore(state_.state.namespaces));
  const NamespaceIndex index = again.FindByName("", "llama");
  ASSERT_FALSE(index.none());
  EXPECT_EQ(again.at(index).info.options().ttl_ms(), 5000u);
}

TEST_F(NamespaceRegistryTest, CountsChunksAndBytes) {
  ASSERT_OK_AND_ASSIGN(const auto ns, Open("llama", "fp"));
  registry_.AddChunk(ns.index, 5000);
  registry_.AddChunk(ns.index, 7000);
  registry_.RemoveChunk(ns.index, 5000);
  EXPECT_EQ(registry_.at(ns.index).chunk_count, 1u);
  EXPECT_EQ(registry_.at(ns.index).payload_bytes, 7000u);
}

}  // namespace
}  // namespace cistern::master
