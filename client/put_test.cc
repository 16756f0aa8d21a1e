// Puts, against a pool in the test's own process.
#include <algorithm>
#include <thread>

#include "base/eventually.h"
#include "client/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using Fault = FakeStore::Fault;

class PutTest : public ClientFixture {
 protected:
  static PutOptions PartBytes(uint64_t bytes) {
    PutOptions options;
    options.part_bytes = bytes;
    return options;
  }
};

TEST_F(PutTest, SmallChunkArrivesWholeAndIsReadBack) {
  const std::string bytes = PatternBytes(1, 5'000);
  EXPECT_EQ(Put("a", bytes), ChunkCode::kOk);
  EXPECT_TRUE(pool_.store(0).Has(Name("a")));
  EXPECT_EQ(Get("a", 5'000), std::pair(ChunkCode::kOk, bytes));
  EXPECT_TRUE(last_.verified);
  EXPECT_EQ(last_.length, 5'000u);
}

TEST_F(PutTest, LargeChunkGoesAfterReady) {
  const std::string bytes = PatternBytes(2, (5 << 20) + 12'345);
  EXPECT_EQ(Put("a", bytes), ChunkCode::kOk);
  EXPECT_EQ(Get("a", bytes.size()), std::pair(ChunkCode::kOk, bytes));
  EXPECT_TRUE(last_.verified);
}

TEST_F(PutTest, ScatteredMemoryIsGathered) {
  const std::string bytes = PatternBytes(3, 300'000);
  std::vector<Span> spans;
  for (size_t at = 0; at < bytes.size(); at += 7'001) {
    const size_t n = std::min<size_t>(7'001, bytes.size() - at);
    Take(1);  // a gap between the pieces
    spans.push_back(Take(n));
    std::memcpy(spans.back().data, bytes.data() + at, n);
  }
  const PutItem item{.id = Id("a"), .memory = {.spans = spans}};
  EXPECT_EQ(ns_->BatchPut({&item, 1}).items[0].code, ChunkCode::kOk);
  EXPECT_EQ(Get("a", bytes.size()), std::pair(ChunkCode::kOk, bytes));
}

TEST_F(PutTest, LayoutUnitIsGathered) {
  // Two layers of 4 units, 8 KiB a piece.
  char* const base = static_cast<char*>(Take(2 * 4 * 8192).data);
  FillPattern(9, base, 2 * 4 * 8192);
  ASSERT_OK_AND_ASSIGN(const LayoutId layout,
                       client_->RegisterLayout({.bases = {base, base + 4 * 8192},
                                                .unit_stride_bytes = 8192,
                                                .piece_bytes = 8192,
                                                .unit_count = 4}));
  const PutItem item{.id = Id("a"), .memory = {.layout = layout, .unit = 2}};
  EXPECT_EQ(ns_->BatchPut({&item, 1}).items[0].code, ChunkCode::kOk);
  EXPECT_EQ(Get("a", 16'384).second,
            std::string(base + 2 * 8192, 8192) + std::string(base + 6 * 8192, 8192));
}

TEST_F(PutTest, PresentChunkCostsNoBytes) {
  const std::string bytes = PatternBytes(1, 100'000);
  EXPECT_EQ(Put("a", bytes), ChunkCode::kOk);
  const uint64_t sent = pool_.store(0).payload_bytes_in;
  EXPECT_EQ(Put("a", bytes), ChunkCode::kPresent);
  EXPECT_EQ(pool_.store(0).payload_bytes_in, sent);
  EXPECT_EQ(client_->stats().put_present, 1u);
  EXPECT_EQ(client_->stats().put_chunks, 1u);
}

TEST_F(PutTest, WhatTheStoreHasAlreadyIsNotSentAfterReady) {
  const std::string there = PatternBytes(1, 1 << 20);
  pool_.store(0).Add(Name("there"), {.bytes = there});
  pool_.master().SetLookupAnswer(Id("there"), {});  // the master has not heard of it yet
  const std::vector<PutItem> items = {ItemToPut("there", there),
                                      ItemToPut("new", PatternBytes(2, 1 << 20))};
  const BatchResult result = ns_->BatchPut(items);
  EXPECT_EQ(result.items[0].code, ChunkCode::kPresent);
  EXPECT_EQ(result.items[1].code, ChunkCode::kOk);
  EXPECT_EQ(pool_.store(0).payload_bytes_in, (1u << 20) + 8);  // one chunk of one part
}

TEST_F(PutTest, TheEndOfALargeBatchGoesAheadOfTheRest) {
  // 20 chunks of 64 KiB: 16 of them, with their digests, fit a request's own frame.
  std::vector<PutItem> items;
  for (int i = 0; i < 20; ++i) {
    items.push_back(ItemToPut("k" + std::to_string(i), PatternBytes(i, 65'536)));
  }
  EXPECT_THAT(ns_->BatchPut(items).items, Each(Field(&ChunkResult::code, ChunkCode::kOk)));
  EXPECT_EQ(pool_.store(0).puts, 2);
  EXPECT_EQ(pool_.store(0).size(), 20u);
  EXPECT_EQ(pool_.store(0).payload_bytes_in, 20u * (65'536 + 8));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Get("k" + std::to_string(i), 65'536),
              std::pair(ChunkCode::kOk, PatternBytes(i, 65'536)));
  }
}

TEST_F(PutTest, DoubleInOneBatchIsSentOnceAndAnsweredTwice) {
  const std::string bytes = PatternBytes(1, 8'192);
  const std::vector<PutItem> items = {ItemToPut("a", bytes), ItemToPut("b", bytes),
                                      ItemToPut("a", bytes)};
  const BatchResult result = ns_->BatchPut(items);
  EXPECT_THAT(result.items, Each(Field(&ChunkResult::code, ChunkCode::kOk)));
  EXPECT_EQ(pool_.store(0).payload_bytes_in, 2u * (8'192 + 8));
  EXPECT_EQ(pool_.store(0).size(), 2u);
}

TEST_F(PutTest, ShardsAreDifferentChunks) {
  const std::vector<PutItem> items = {ItemToPut("a", PatternBytes(1, 8'192), 0),
                                      ItemToPut("a", PatternBytes(2, 8'192), 7)};
  EXPECT_EQ(ns_->BatchPut(items).CountOf(ChunkCode::kOk), 2u);
  const GetItem get = ItemToGet("a", 8'192, 7);
  EXPECT_EQ(ns_->BatchGet({&get, 1}).items[0].code, ChunkCode::kOk);
  EXPECT_EQ(TextOf(get.memory), PatternBytes(2, 8'192));
}

TEST_F(PutTest, BadItemsAreRefusedAloneWithAReason) {
  char elsewhere[8192] = {};
  const Span outside{elsewhere, sizeof(elsewhere)};
  const std::vector<PutItem> items = {
      {.id = Id("unregistered"), .memory = {.spans = {&outside, 1}}},
      ItemToPut("short", std::string(4'095, 'x')),
      ItemToPut("good", std::string(4'096, 'x')),
      {.id = Id("none")},
      ItemToPut("shard", std::string(4'096, 'x'), 4'096),
  };
  const BatchResult result = ns_->BatchPut(items);
  EXPECT_OK(result.status);
  for (const int i : {0, 1, 3, 4})
    EXPECT_EQ(result.items[i].code, ChunkCode::kInvalidArgument) << i;
  EXPECT_EQ(result.items[2].code, ChunkCode::kOk);
  EXPECT_THAT(result.message, HasSubstr("item 0"));
  EXPECT_EQ(pool_.store(0).size(), 1u);
}

TEST_F(PutTest, PartBytesAndNoDigestsReachTheStore) {
  EXPECT_EQ(Put("a", PatternBytes(1, 100'000), PartBytes(4'096)), ChunkCode::kOk);
  EXPECT_EQ(Get("a", 100'000).first, ChunkCode::kOk);
  // 25 parts, 8 bytes each.
  EXPECT_EQ(pool_.store(0).payload_bytes_in, 100'000u + 25 * 8);
  EXPECT_EQ(Put("b", PatternBytes(1, 100'000), PartBytes(5'000)), ChunkCode::kInvalidArgument);

  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("plain", "v1", {.digest = false}));
  EXPECT_EQ(Put("c", PatternBytes(1, 100'000)), ChunkCode::kOk);
  EXPECT_EQ(pool_.store(0).payload_bytes_in, 200'000u + 25 * 8);
  EXPECT_EQ(Get("c", 100'000), std::pair(ChunkCode::kOk, PatternBytes(1, 100'000)));
  EXPECT_FALSE(last_.verified);
}

TEST_F(PutTest, InProgressAndRefusedAreAnswers) {
  pool_.master().SetInProgress(Id("busy"));
  EXPECT_EQ(Put("busy", std::string(4'096, 'x')), ChunkCode::kInProgress);
  pool_.master().set_place_on(-1);
  EXPECT_EQ(Put("full", std::string(4'096, 'x')), ChunkCode::kResourceExhausted);
  EXPECT_THAT(last_message_, HasSubstr("no store has room"));
}

TEST_F(PutTest, FullStoreIsAnAnswer) {
  pool_.store(0).set_put_fault(Fault::kFull);
  EXPECT_EQ(Put("a", std::string(2 << 20, 'x')), ChunkCode::kResourceExhausted);
}

TEST_F(PutTest, DeadStoreIsPlacedAnewUnderTheSameOperation) {
  EXPECT_EQ(Put("warm", std::string(4'096, 'x')), ChunkCode::kOk);  // connected
  const size_t before = pool_.master().operation_ids().size();
  pool_.store(0).Stop();
  // The second Place goes to the other store.
  const PutItem item = ItemToPut("a", PatternBytes(1, 3 << 20));
  auto pending = ns_->BatchPutAsync({&item, 1});
  ASSERT_TRUE(Eventually([&] { return pool_.master().places >= 2; }));
  pool_.master().set_place_on(1);
  const BatchResult result = pending.Take();
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_TRUE(pool_.store(1).Has(Name("a")));
  EXPECT_EQ(pool_.master().operation_ids().size(), before + 1);
}

TEST_F(PutTest, StoreThatStaysDeadIsUnavailableAtTheDeadline) {
  pool_.store(0).Stop();
  EXPECT_EQ(Put("a", std::string(4'096, 'x'), {{.deadline = absl::Milliseconds(200)}}),
            ChunkCode::kUnavailable);
}

TEST_F(PutTest, SilentStoreEndsAtTheDeadline) {
  pool_.store(0).set_put_fault(Fault::kNever);
  const MonoTime start = Clock::Real().Mono();
  EXPECT_EQ(Put("a", std::string(3 << 20, 'x'), {{.deadline = absl::Milliseconds(100)}}),
            ChunkCode::kDeadlineExceeded);
  // 150 ms after it on a quiet host; far from the default of 5 s on a busy one.
  EXPECT_LT(Clock::Real().Mono() - start, absl::Seconds(2));
}

TEST_F(PutTest, AnswerThatDoesNotFitTheRequestIsNoAnswer) {
  pool_.store(0).set_put_fault(Fault::kBadColumns);
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kInternal);
}

TEST_F(PutTest, CancelledPutEndsQuietly) {
  pool_.store(0).set_put_fault(Fault::kNever);
  const PutItem item = ItemToPut("a", std::string(3 << 20, 'x'));
  auto pending = ns_->BatchPutAsync({&item, 1});
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).puts > 0; }));
  EXPECT_FALSE(pending.Done());
  pending.Cancel();
  EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kCancelled);
}

TEST_F(PutTest, ManyChunksUnderASmallBudget) {
  ClientOptions options = pool_.options();
  options.max_inflight_bytes = 1 << 20;
  options.deadline = absl::Minutes(1);  // sanitizers digest slowly
  Connect(options);
  used_ = 0;
  std::vector<PutItem> items;
  for (int i = 0; i < 64; ++i) {
    items.push_back(ItemToPut("k" + std::to_string(i), PatternBytes(i, 300'000)));
  }
  const BatchResult result = ns_->BatchPut(items);
  EXPECT_EQ(result.CountOf(ChunkCode::kOk), 64u) << result.message;
  EXPECT_GE(pool_.store(0).puts, 64 / 3);  // three fit the budget at once
  for (int i = 0; i < 64; i += 21) {
    EXPECT_EQ(Get("k" + std::to_string(i), 300'000).second, PatternBytes(i, 300'000));
  }
}

TEST_F(PutTest, WaitVisibleAsksUntilLookupsSeeIt) {
  pool_.master().SetLookupAnswer(Id("a"), {});
  const PutItem item = ItemToPut("a", std::string(4'096, 'x'));
  PutOptions options;
  options.wait_visible = true;
  auto pending = ns_->BatchPutAsync({&item, 1}, options);
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).Has(Name("a")); }));
  EXPECT_FALSE(pending.Done());
  pool_.master().SetLookupAnswer(Id("a"), {0});
  const BatchResult result = pending.Take();
  EXPECT_OK(result.status);
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
}

// The master hears of a put from the store, a moment after the client. (In rounds: a host that
// holds the test up for longer than that moment lasts is no fault.)
TEST_F(PutTest, OwnLookupsSeeAPutBeforeTheMasterDoes) {
  int round = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::string key = "fresh" + std::to_string(round);
    const std::vector<KeyId> ids = {Id("old" + std::to_string(round)), Id(key),
                                    Id("never" + std::to_string(round))};
    ++round;
    EXPECT_EQ(Put("old" + std::to_string(round - 1), std::string(4'096, 'o')), ChunkCode::kOk);
    EXPECT_EQ(Put(key, std::string(4'096, 'x')), ChunkCode::kOk);
    pool_.master().HideFor(ids[1], 2);
    const int leases = pool_.master().leases;
    const auto found = ns_->Lookup(ids);
    EXPECT_OK(found);
    if (!found.ok() || found->leading_run != 2) return false;
    EXPECT_EQ(found->present, (std::vector<bool>{true, true, false}));
    // Each part of the run under a lease of the master's.
    EXPECT_EQ(found->leases.size(), 2u);
    EXPECT_EQ(pool_.master().leases, leases + 2);
    EXPECT_NE(found->stores[1], LookupResult::kNoStore);
    EXPECT_EQ(found->stores[2], LookupResult::kNoStore);
    return true;
  }));
  EXPECT_TRUE(Eventually([&] {
    const std::string key = "checked" + std::to_string(round++);
    EXPECT_EQ(Put(key, std::string(4'096, 'x')), ChunkCode::kOk);
    pool_.master().HideFor(Id(key), 2);
    const KeyId ids[] = {Id(key)};
    const auto found = ns_->Exists(ids);
    EXPECT_OK(found);
    return found.ok() && found->at(0);
  }));
}

// In a mutable namespace gets ask the master each time.
TEST_F(PutTest, OwnGetsFindAPutBeforeTheMasterDoes) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("mutable", "v1", {.mutable_chunks = true}));
  int round = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::string key = "fresh" + std::to_string(round++);
    EXPECT_EQ(Put(key, std::string(4'096, 'x')), ChunkCode::kOk);
    pool_.master().HideFor(Id(key), 1);
    return Get(key, 4'096).second == std::string(4'096, 'x');
  }));
}

// What was removed since is not waited for, and what was never put neither.
TEST_F(PutTest, LookupsOfWhatIsNotThereAskOnce) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  const KeyId ids[] = {Id("a"), Id("b")};
  EXPECT_EQ(ns_->Remove({ids, 1}).items.at(0).code, ChunkCode::kOk);
  const int lookups = pool_.master().lookups;
  ASSERT_OK_AND_ASSIGN(const LookupResult found, ns_->Lookup(ids));
  EXPECT_EQ(found.present, (std::vector<bool>{false, false}));
  EXPECT_EQ(pool_.master().lookups, lookups + 1);
}

}  // namespace
}  // namespace cistern
