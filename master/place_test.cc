// The core: where chunks are placed, and what is in progress.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;
constexpr uint64_t kChunk = 65536;

TEST(PlaceTest, PresentInProgressAndPlacedAreToldApart) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  t.Place({2}, kChunk, /*operation=*/5);
  const wire::PlaceReply reply = t.Place({1, 2, 3}, kChunk, /*operation=*/6);
  EXPECT_EQ(reply.present(), std::string(1, 0b001));
  EXPECT_EQ(reply.in_progress(), std::string(1, 0b010));
  EXPECT_EQ(reply.refused(), std::string(1, 0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 0), StoreIndex(0));
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 1).value, StoreIndex::kNone);
  EXPECT_EQ(TestPool::StoreAt(reply.stores(), 2), StoreIndex(0));
}

TEST(PlaceTest, RepeatOfAnOperationHearsTheSameStore) {
  TestPool t;
  t.Connect(0, 10 * kMiB);
  t.Connect(1, 10 * kMiB);
  const StoreIndex first = TestPool::StoreAt(t.Place({1}, kChunk, 5).stores(), 0);
  // The other one has more room now; the repeat stays.
  const wire::PlaceReply again = t.Place({1}, kChunk, 5);
  EXPECT_EQ(TestPool::StoreAt(again.stores(), 0), first);
  EXPECT_EQ(again.in_progress(), std::string(1, 0));
  EXPECT_NE(TestPool::StoreAt(t.Place({2}).stores(), 0), first)
      << "placed bytes count before they are reported";
}

TEST(PlaceTest, InProgressEndsWithTheRecordOrByTime) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  t.Place({1, 2});
  EXPECT_EQ(t.core().Pool(t.now).in_progress_puts, 2u);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 1, 1)));
  EXPECT_EQ(t.core().Pool(t.now).in_progress_puts, 1u);
  t.now = t.now + absl::Seconds(10);
  EXPECT_EQ(t.Place({2}).in_progress(), std::string(1, 0)) << "its time was up";
}

TEST(PlaceTest, PlacementInADeadStoreIsVoid) {
  TestPool t;
  t.Connect(0, 64 * kMiB);
  const SessionId first = t.Connect(1, 640 * kMiB);
  EXPECT_EQ(TestPool::StoreAt(t.Place({1}).stores(), 0), StoreIndex(1));
  t.core().OnSessionClosed(first, t.now);
  EXPECT_EQ(TestPool::StoreAt(t.Place({1}).stores(), 0), StoreIndex(0));
}

TEST(PlaceTest, BurstsDoNotOverfillAStore) {
  TestPool t;
  t.Connect(0, 100 * kChunk);
  uint64_t placed = 0, refused = 0;
  for (uint64_t id = 0; id < 300; ++id) {
    const wire::PlaceReply reply = t.Place({id});
    (BitmapGet(reply.refused(), 0) ? refused : placed) += 1;
  }
  EXPECT_EQ(placed, 100u) << "nothing is there yet that could be evicted";
  EXPECT_EQ(refused, 200u);
}

TEST(PlaceTest, GoesElsewhereWhenTheAncestorsStoreIsFullOfWhatCannotGo) {
  MasterOptions options;
  options.lease_share = 1.0;
  TestPool t(options);
  const SessionId full = t.Connect(0, 100 * kChunk);
  ASSERT_OK(t.SendRecords(full, 1, Puts(1, 95, 1)));
  std::vector<uint64_t> ids;
  for (uint64_t i = 1; i <= 95; ++i) ids.push_back(i);
  ASSERT_EQ(t.Lookup(ids).leased_keys(), 95u);
  t.Connect(1, 100 * kChunk);
  // More than half of the chain is in store 0, which has room for five of the eight others.
  const wire::PlaceReply reply =
      t.Place({1, 2, 3, 4, 5, 6, 7, 8, 9, 201, 202, 203, 204, 205, 206, 207, 208});
  EXPECT_EQ(reply.refused(), std::string(3, 0));
  for (size_t i = 9; i < 14; ++i) EXPECT_EQ(TestPool::StoreAt(reply.stores(), i), StoreIndex(0));
  for (size_t i = 14; i < 17; ++i) EXPECT_EQ(TestPool::StoreAt(reply.stores(), i), StoreIndex(1));
  // Both full: refused, however often it is asked.
  ids.clear();
  for (uint64_t i = 301; i <= 401; ++i) ids.push_back(i);
  const wire::PlaceReply second = t.Place(ids);
  for (size_t i = 0; i < 97; ++i) EXPECT_EQ(TestPool::StoreAt(second.stores(), i), StoreIndex(1));
  for (size_t i = 97; i < 101; ++i) EXPECT_TRUE(BitmapGet(second.refused(), i));
}

TEST(PlaceTest, NoStoreIsAReason) {
  TestPool t;
  const wire::PlaceReply reply = t.Place({1, 2});
  EXPECT_EQ(reply.refused(), std::string(1, 0b11));
  EXPECT_NE(reply.refused_reason(), "");
  EXPECT_EQ(t.core().Pool(t.now).counters.place_refused, 2u);
}

TEST(PlaceTest, LengthsOutOfBoundsAreRefused) {
  TestPool t;
  for (const uint32_t length : {0u, 4095u, (1u << 30) + 1}) {
    wire::PlaceRequest request;
    request.set_map_version(1);
    request.set_ids(PackIds({TestId(1)}));
    request.set_lengths(&length, 4);
    request.set_operation_id(std::string(16, 'o'));
    wire::PlaceReply reply;
    EXPECT_THAT(PlaceCall(request, &reply).Prepare(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace cistern::master
