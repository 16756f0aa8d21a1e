#include "store/version_ceiling.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fault.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

using testing::HasSubstr;

constexpr uint64_t kStep = VersionCeiling::kStep;

class VersionCeilingTest : public testing::Test {
 protected:
  ~VersionCeilingTest() override { DisarmFaults(); }
  std::unique_ptr<VersionCeiling> Open(uint8_t pool = 1) {
    auto opened = TryOpen(pool);
    EXPECT_OK(opened);
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  absl::StatusOr<std::unique_ptr<VersionCeiling>> TryOpen(uint8_t pool = 1) {
    VersionCeiling::Options options;
    options.data_dir = dir_.path();
    options.pool_id.bytes.fill(pool);
    return VersionCeiling::Open(options);
  }
  static Version Take(VersionCeiling& c) {
    EXPECT_OK(c.Promise(1));
    return c.Next();
  }
  TempDir dir_;
};

TEST_F(VersionCeilingTest, NewFolderGetsAnIdentityAndVersionsFromOne) {
  auto c = Open();
  EXPECT_TRUE(c->created());
  EXPECT_FALSE(c->store_id().IsZero());
  EXPECT_EQ(c->Peek(), Version(1));
  EXPECT_EQ(Take(*c), Version(1));
  EXPECT_EQ(Take(*c), Version(2));
}

TEST_F(VersionCeilingTest, IdentityStaysAndVersionsGoOnAboveTheCeiling) {
  auto c = Open();
  const StoreId id = c->store_id();
  Take(*c);
  const uint64_t ceiling = c->ceiling();
  EXPECT_EQ(ceiling, 1 + kStep);
  c.reset();
  c = Open();
  EXPECT_FALSE(c->created());
  EXPECT_EQ(c->store_id(), id);
  EXPECT_EQ(Take(*c), Version(ceiling + 1));
}

TEST_F(VersionCeilingTest, StartsAboveTheGreatestVersionSeen) {
  auto c = Open();
  c->Saw(Version(5'000'000));
  c->Saw(Version(7));
  EXPECT_EQ(Take(*c), Version(5'000'001));
  EXPECT_GE(c->ceiling(), 5'000'001u);
}

TEST_F(VersionCeilingTest, CeilingIsRaisedAheadOfUse) {
  auto c = Open();
  ASSERT_OK(c->Promise(1));
  const uint64_t first = c->ceiling();
  ASSERT_OK(c->Promise(kStep / 2 + 1));  // half a step is left: raised
  EXPECT_GT(c->ceiling(), first);
  c->Unpromise(kStep / 2 + 1);
  EXPECT_EQ(c->Next(), Version(1));
}

TEST_F(VersionCeilingTest, DurableBeforeItIsUsed) {
  auto c = Open();
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(c->Promise(kStep));
    c->Unpromise(kStep - 1);
    const Version v = c->Next();
    uint64_t in_file = 0;
    std::memcpy(&in_file, ReadFile(dir_ / "identity").data() + 48, 8);
    EXPECT_GE(in_file, v.value);
    EXPECT_EQ(in_file, c->ceiling());
  }
}

TEST_F(VersionCeilingTest, FullDiskStopsVersionsOnlyWhenTheReserveIsUsedUp) {
  auto c = Open();
  ASSERT_OK(c->Promise(1));
  c->Next();
  ASSERT_OK(ArmFault("store.ceiling.write:error:0"));
  // Version 1 is given, the ceiling is 1 + kStep.
  EXPECT_OK(c->Promise(kStep));
  EXPECT_THAT(c->Promise(1), StatusIs(absl::StatusCode::kUnavailable));
  DisarmFaults();
  EXPECT_OK(c->Promise(1));
  c->Unpromise(kStep);
  EXPECT_EQ(c->Next(), Version(2));
}

TEST_F(VersionCeilingTest, VersionsEndAtFortyBits) {
  auto c = Open();
  c->Saw(Version(Version::kMax - 2));
  EXPECT_EQ(Take(*c), Version(Version::kMax - 1));
  EXPECT_EQ(Take(*c), Version(Version::kMax));
  EXPECT_THAT(c->Promise(1), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(VersionCeilingTest, SecondStoreOnAFolderIsRefused) {
  auto c = Open();
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("in use by another store process")));
  c.reset();
  EXPECT_OK(TryOpen());
}

TEST_F(VersionCeilingTest, FolderOfAnotherPoolIsRefused) {
  Open();
  EXPECT_THAT(TryOpen(2), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("belongs to pool 01010101")));
}

TEST_F(VersionCeilingTest, DamagedOrNewerFileIsRefused) {
  Open();
  const std::string good = ReadFile(dir_ / "identity");
  ASSERT_EQ(good.size(), 64u);
  std::string bad = good;
  bad[50] ^= 1;
  WriteFile(dir_ / "identity", bad);
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("damaged")));
  WriteFile(dir_ / "identity", good.substr(0, 40));
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("damaged")));
  bad = good;
  bad[8] = 2;
  WriteFile(dir_ / "identity", bad);
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("format 2")));
  WriteFile(dir_ / "identity", good);
  EXPECT_OK(TryOpen());
}

TEST_F(VersionCeilingTest, LeftoverOfAWriteCutShortIsIgnored) {
  auto c = Open();
  Take(*c);
  const uint64_t ceiling = c->ceiling();
  c.reset();
  WriteFile(dir_ / "identity.new", "half a fi");
  c = Open();
  EXPECT_EQ(c->Peek(), Version(ceiling + 1));
}

TEST_F(VersionCeilingTest, MissingFolderIsSaid) {
  VersionCeiling::Options options;
  options.data_dir = dir_ / "none";
  EXPECT_THAT(VersionCeiling::Open(options),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST_F(VersionCeilingTest, ThreadsNeverShareAVersion) {
  auto c = Open();
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::vector<std::vector<uint64_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) taken[t].push_back(Take(*c).value);
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<uint64_t> all;
  for (const auto& part : taken) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i + 1);
}

}  // namespace
}  // namespace cistern::store
