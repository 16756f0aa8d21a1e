// Gets, against a pool in the test's own process that can be made to lie.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/eventually.h"
#include "client/testing/client_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using Fault = FakeStore::Fault;

class GetTest : public ClientFixture {
 protected:
  // A chunk that is there, put there by somebody else.
  std::string Stored(std::string_view key, uint64_t seed, uint64_t bytes, int store = 0,
                     uint32_t part_bytes = 0) {
    const std::string text = PatternBytes(seed, bytes);
    pool_.store(store).Add(Name(key), {.bytes = text, .part_bytes = part_bytes});
    return text;
  }
};

TEST_F(GetTest, MissIsNotFound) {
  EXPECT_EQ(Get("nothing", 4'096).first, ChunkCode::kNotFound);
  EXPECT_EQ(client_->stats().get_misses, 1u);
}

TEST_F(GetTest, ScattersIntoUnalignedSpans) {
  const std::string bytes = Stored("a", 1, 3'000'000);
  std::vector<Span> spans;
  for (size_t at = 0; at < bytes.size(); at += 99'991) {
    Take(1);
    spans.push_back(Take(std::min<size_t>(99'991, bytes.size() - at)));
  }
  const GetItem item{.id = Id("a"), .memory = {.spans = spans}};
  const BatchResult result = ns_->BatchGet({&item, 1});
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
  EXPECT_TRUE(result.items[0].verified);
  EXPECT_TRUE(TextOf(item.memory) == bytes);
}

TEST_F(GetTest, BatchOverStoresWithMissesBetween) {
  std::vector<GetItem> items;
  for (int i = 0; i < 30; ++i) {
    const std::string key = "k" + std::to_string(i);
    if (i % 3 != 2) Stored(key, i, 50'000 + i, i % 2);
    items.push_back(ItemToGet(key, 50'000 + i));
  }
  const BatchResult result = ns_->BatchGet(items);
  for (int i = 0; i < 30; ++i) {
    if (i % 3 == 2) {
      EXPECT_EQ(result.items[i].code, ChunkCode::kNotFound);
    } else {
      EXPECT_EQ(result.items[i].code, ChunkCode::kOk);
      EXPECT_TRUE(TextOf(items[i].memory) == PatternBytes(i, 50'000 + i)) << i;
    }
  }
}

TEST_F(GetTest, WrongLengthNamesTheRealOne) {
  Stored("a", 1, 10'000);
  EXPECT_EQ(Get("a", 8'192).first, ChunkCode::kInvalidArgument);
  EXPECT_EQ(last_.length, 10'000u);
  EXPECT_THAT(last_message_, HasSubstr("the chunk has 10000 bytes, the target 8192"));
}

TEST_F(GetTest, AnyLengthFillsTheFront) {
  const std::string bytes = Stored("a", 1, 10'000);
  GetItem item = ItemToGet("a", 16'384);
  std::memset(item.memory.spans[0].data, 'z', 16'384);
  item.any_length = true;
  const BatchResult result = ns_->BatchGet({&item, 1});
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
  EXPECT_EQ(result.items[0].length, 10'000u);
  EXPECT_EQ(TextOf(item.memory), bytes + std::string(6'384, 'z'));
}

TEST_F(GetTest, RangesAndRunsOfParts) {
  const std::string bytes = Stored("a", 1, 300'000, 0, 65'536);
  std::vector<GetItem> items = {ItemToGet("a", 1'000), ItemToGet("a", 131'072),
                                ItemToGet("a", 300'000 - 262'144), ItemToGet("a", 65'536)};
  items[0].range_offset = 65'000;  // cuts parts
  items[0].range_bytes = 1'000;
  items[1].range_offset = 65'536;  // two whole parts
  items[1].range_bytes = 131'072;
  items[2].first_part = 4;  // the last, which is shorter
  items[3].first_part = 1;
  items[3].part_count = 1;
  const BatchResult result = ns_->BatchGet(items);
  EXPECT_EQ(result.CountOf(ChunkCode::kOk), 4u) << result.message;
  EXPECT_FALSE(result.items[0].verified);
  EXPECT_TRUE(result.items[1].verified);
  EXPECT_TRUE(result.items[2].verified);
  EXPECT_TRUE(result.items[3].verified);
  EXPECT_TRUE(TextOf(items[0].memory) == bytes.substr(65'000, 1'000));
  EXPECT_TRUE(TextOf(items[1].memory) == bytes.substr(65'536, 131'072));
  EXPECT_TRUE(TextOf(items[2].memory) == bytes.substr(262'144));
  EXPECT_TRUE(TextOf(items[3].memory) == bytes.substr(65'536, 65'536));
}

TEST_F(GetTest, BadItemsAreRefusedAlone) {
  Stored("a", 1, 8'192);
  Stored("b", 2, 8'192);
  std::vector<GetItem> items(6, ItemToGet("a", 8'192));
  items[1].memory = Room(8'192);  // items 0, 2 and on share a target but for these
  items[2].memory = Room(100);    // shorter than any chunk
  items[3].memory = Room(8'192);
  items[3].range_bytes = 100;  // its target is longer
  items[4].memory = Room(8'192);
  items[4].range_bytes = 8'192;
  items[4].part_count = 1;  // both
  items[5].id = Id("b");    // the same target as item 0
  const BatchResult result = ns_->BatchGet(items);
  EXPECT_OK(result.status);
  for (const int i : {0, 2, 3, 4, 5}) {
    EXPECT_EQ(result.items[i].code, ChunkCode::kInvalidArgument) << i;
  }
  EXPECT_EQ(result.items[1].code, ChunkCode::kOk);
}

// A run of parts is held to the root, and so to the chunk's name, not only to the digests that come
// with it.
TEST_F(GetTest, RunOfPartsIsHeldToTheRoot) {
  const std::string text = PatternBytes(1, 300'000);
  pool_.store(0).Add(Name("a"), {.bytes = text, .part_bytes = 65'536, .flipped_digest = 4});
  GetItem item = ItemToGet("a", 131'072);
  item.first_part = 1;
  item.part_count = 2;
  EXPECT_EQ(ns_->BatchGet({&item, 1}).items[0].code, ChunkCode::kDataLoss);

  Stored("b", 2, 300'000, 0, 65'536);
  Stored("c", 3, 300'000, 0, 65'536);
  pool_.store(0).set_get_fault(Fault::kOtherChunk);  // with that one's digests and root
  item.id = Id("b");
  EXPECT_EQ(ns_->BatchGet({&item, 1}).items[0].code, ChunkCode::kDataLoss);
  // A range of whole parts is as good as a run.
  GetItem range = ItemToGet("b", 131'072);
  range.range_offset = 65'536;
  range.range_bytes = 131'072;
  EXPECT_EQ(ns_->BatchGet({&range, 1}).items[0].code, ChunkCode::kDataLoss);
}

TEST_F(GetTest, CachedPlacementAsksTheMasterNothing) {
  EXPECT_EQ(Put("put here", std::string(4'096, 'x')), ChunkCode::kOk);
  EXPECT_EQ(Get("put here", 4'096).first, ChunkCode::kOk);
  EXPECT_EQ(pool_.master().lookups, 0);
  Stored("elsewhere", 1, 4'096, 1);
  EXPECT_EQ(Get("elsewhere", 4'096).first, ChunkCode::kOk);
  EXPECT_EQ(Get("elsewhere", 4'096).first, ChunkCode::kOk);
  EXPECT_EQ(pool_.master().lookups, 1);
}

TEST_F(GetTest, StalePlacementIsLookedUpOnceThenAMiss) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  pool_.store(0).Erase(Name("a"));
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kNotFound);
  EXPECT_EQ(pool_.master().lookups, 1);
  // It moved: the same, found.
  EXPECT_EQ(Put("b", std::string(4'096, 'x')), ChunkCode::kOk);
  pool_.store(0).Erase(Name("b"));
  const std::string moved = Stored("b", 7, 4'096, 1);
  EXPECT_EQ(Get("b", 4'096), std::pair(ChunkCode::kOk, moved));
}

TEST_F(GetTest, FlippedByteIsDataLossAndReported) {
  Stored("a", 1, 200'000);
  pool_.store(0).set_get_fault(Fault::kFlippedByte);
  EXPECT_EQ(Get("a", 200'000).first, ChunkCode::kDataLoss);
  EXPECT_GE(client_->stats().verify_failures, 1u);
  EXPECT_TRUE(Eventually([&] { return pool_.store(0).bad_reports > 0; }));
}

TEST_F(GetTest, FlippedByteIsHealedByTheOtherReplica) {
  const std::string bytes = Stored("a", 1, 200'000, 0);
  Stored("a", 1, 200'000, 1);
  pool_.store(0).set_get_fault(Fault::kFlippedByte);
  EXPECT_EQ(Get("a", 200'000), std::pair(ChunkCode::kOk, bytes));
  EXPECT_TRUE(last_.verified);
}

TEST_F(GetTest, AnotherChunksBytesNeverPass) {
  Stored("a", 1, 8'192);
  Stored("b", 2, 8'192);
  pool_.store(0).set_get_fault(Fault::kOtherChunk);
  EXPECT_EQ(Get("a", 8'192).first, ChunkCode::kDataLoss);
}

TEST_F(GetTest, NonsenseFromAStoreIsNeverAnAnswer) {
  Stored("a", 1, 2 << 20);
  for (const Fault fault : {Fault::kBadColumns, Fault::kHalf, Fault::kLies}) {
    pool_.store(0).set_get_fault(fault);
    const auto [code, bytes] = Get("a", 2 << 20);
    EXPECT_TRUE(code == ChunkCode::kInternal || code == ChunkCode::kUnavailable)
        << static_cast<int>(fault) << ": " << ChunkCodeName(code);
  }
  // The connection that broke over it is made anew.
  pool_.store(0).set_get_fault(Fault::kNone);
  EXPECT_EQ(Get("a", 2 << 20), std::pair(ChunkCode::kOk, PatternBytes(1, 2 << 20)));
}

TEST_F(GetTest, DeadStoreIsTurnedAwayFrom) {
  const std::string bytes = Stored("a", 1, 8'192, 0);
  Stored("a", 1, 8'192, 1);
  pool_.store(0).Stop();
  EXPECT_EQ(Get("a", 8'192), std::pair(ChunkCode::kOk, bytes));
  // With no other replica it is unavailable, soon.
  Stored("b", 1, 8'192, 0);
  const MonoTime start = Clock::Real().Mono();
  EXPECT_EQ(Get("b", 8'192).first, ChunkCode::kUnavailable);
  EXPECT_LT(Clock::Real().Mono() - start, absl::Seconds(2));
}

TEST_F(GetTest, RestartedStoreIsFoundAgain) {
  const std::string bytes = Stored("a", 1, 8'192);
  EXPECT_EQ(Get("a", 8'192).first, ChunkCode::kOk);
  pool_.store(0).Stop();
  pool_.store(0).Start("");  // on another port
  pool_.master().BumpDirectory();
  EXPECT_EQ(Get("a", 8'192), std::pair(ChunkCode::kOk, bytes));
}

TEST_F(GetTest, SilentStoreEndsAtTheDeadline) {
  Stored("a", 1, 8'192);
  pool_.store(0).set_get_fault(Fault::kNever);
  const MonoTime start = Clock::Real().Mono();
  EXPECT_EQ(Get("a", 8'192, {{.deadline = absl::Milliseconds(100)}}).first,
            ChunkCode::kDeadlineExceeded);
  // 150 ms after it on a quiet host; far from the default of 5 s on a busy one.
  EXPECT_LT(Clock::Real().Mono() - start, absl::Seconds(2));
}

TEST_F(GetTest, AsyncIsWatchedThroughItsEventFd) {
  const std::string bytes = Stored("a", 1, 1 << 20);
  const GetItem item = ItemToGet("a", 1 << 20);
  auto pending = ns_->BatchGetAsync({&item, 1});
  pollfd fd = {.fd = pending.EventFd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&fd, 1, 10'000), 1);
  EXPECT_TRUE(pending.Done());
  EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kOk);
  EXPECT_TRUE(TextOf(item.memory) == bytes);
}

TEST_F(GetTest, AsyncIsWaitedForInThisThread) {
  Stored("a", 1, 1 << 20);
  const GetItem item = ItemToGet("a", 1 << 20);
  auto pending = ns_->BatchGetAsync({&item, 1});
  EXPECT_TRUE(pending.Wait());
  EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kOk);
}

TEST_F(GetTest, CancelEndsQuietly) {
  Stored("a", 1, 8'192);
  pool_.store(0).set_get_fault(Fault::kNever);
  const GetItem item = ItemToGet("a", 8'192);
  auto pending = ns_->BatchGetAsync({&item, 1});
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).gets > 0; }));
  EXPECT_FALSE(pending.Wait(absl::ZeroDuration()));
  pending.Cancel();
  EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kCancelled);
  EXPECT_EQ(pool_.store(0).cancelled, 1);
}

TEST_F(GetTest, DestroyingAPendingOrTheClientEndsTheCall) {
  Stored("a", 1, 8'192);
  pool_.store(0).set_get_fault(Fault::kNever);
  const GetItem item = ItemToGet("a", 8'192);
  { auto pending = ns_->BatchGetAsync({&item, 1}); }
  const GetItem second = ItemToGet("a", 8'192);
  auto pending = ns_->BatchGetAsync({&second, 1});
  client_.reset();
  EXPECT_TRUE(pending.Done());
  EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kCancelled);
  // What outlives the client says so.
  EXPECT_THAT(ns_->BatchGet({&item, 1}).status, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(GetTest, ThreadsShareAClient) {
  for (int i = 0; i < 4; ++i) Stored("k" + std::to_string(i), i, 500'000, i % 2);
  std::vector<GetItem> items;
  for (int i = 0; i < 4; ++i) items.push_back(ItemToGet("k" + std::to_string(i), 500'000));
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        const BatchResult result = ns_->BatchGet({&items[i], 1});
        if (result.items[0].code == ChunkCode::kOk &&
            TextOf(items[i].memory) == PatternBytes(i, 500'000)) {
          ++good;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
}

}  // namespace
}  // namespace cistern
