// Gets ordered by part, against a pool that sends as much as the test allows, lies, and breaks.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/eventually.h"
#include "client/testing/client_fixture.h"

namespace cistern {
namespace {

using Fault = FakeStore::Fault;

constexpr uint64_t kPart = 65'536;

GetOptions ByPart() {
  GetOptions options;
  options.order = GetOrder::kByPart;
  options.deadline = absl::Seconds(30);
  return options;
}

class GetByPartTest : public ClientFixture {
 protected:
  // A chunk of parts of 64 KiB that is in `store`.
  std::string Stored(std::string_view key, uint64_t seed, uint64_t bytes, int store = 0) {
    const std::string text = PatternBytes(seed, bytes);
    pool_.store(store).Add(Name(key), {.bytes = text, .part_bytes = kPart});
    return text;
  }
  // One whose part `part` does not fit its digest.
  void StoredBad(std::string_view key, uint64_t seed, uint64_t bytes, uint64_t part,
                 int store = 0) {
    const std::string text = PatternBytes(seed, bytes);
    std::string bad = text;
    bad[part * kPart + 7] ^= 1;
    pool_.store(store).Add(Name(key), {.bytes = bad, .part_bytes = kPart, .digested = text});
  }
  static bool HasPart(const GetItem& item, const std::string& text, uint64_t part) {
    // Only that part: the others may be on their way.
    const Span& span = item.memory.spans[0];
    const uint64_t begin = part * kPart;
    const uint64_t bytes = std::min(kPart, span.bytes - begin);
    return std::memcmp(static_cast<char*>(span.data) + begin, text.data() + begin, bytes) == 0;
  }
};

TEST_F(GetByPartTest, BringsChunksOfAnyShapeFromTwoStores) {
  std::vector<GetItem> items;
  std::vector<std::string> texts;
  for (int i = 0; i < 24; ++i) {
    const uint64_t bytes = 4'096 + i * 31'337;  // 1 to 12 parts
    const std::string key = "k" + std::to_string(i);
    texts.push_back(Stored(key, i, bytes, i % 2));
    items.push_back(ItemToGet(key, bytes));
  }
  const BatchResult result = ns_->BatchGet(items, ByPart());
  ASSERT_EQ(result.CountOf(ChunkCode::kOk), 24u) << result.message;
  for (int i = 0; i < 24; ++i) {
    EXPECT_TRUE(result.items[i].verified);
    EXPECT_TRUE(TextOf(items[i].memory) == texts[i]) << i;
  }
  EXPECT_EQ(pool_.store(0).last_get().order(), wire::PART_MAJOR);
  EXPECT_EQ(pool_.store(0).last_get().notify_every(), 1u);
  EXPECT_EQ(pool_.store(0).gets, 1);
  EXPECT_EQ(pool_.store(1).gets, 1);
}

TEST_F(GetByPartTest, PartsAreWaitedForWhileTheOthersAreStillToCome) {
  const std::string a = Stored("a", 1, 4 * kPart);
  const std::string b = Stored("b", 2, 3 * kPart);
  const std::vector<GetItem> items = {ItemToGet("a", a.size()), ItemToGet("b", b.size())};
  constexpr uint64_t kTables = (4 + 3) * 8;
  pool_.store(0).AllowPayload(kTables + 2 * kPart);  // part 0 of both
  const PendingGet get = ns_->BatchGetAsync(items, ByPart());
  EXPECT_EQ(get.WaitPart(0), PartWait::kReady);
  EXPECT_EQ(get.PartsDone(), 1u);
  EXPECT_TRUE(HasPart(items[0], a, 0));
  EXPECT_TRUE(HasPart(items[1], b, 0));
  EXPECT_FALSE(get.Done());
  EXPECT_EQ(get.WaitPart(1, absl::Milliseconds(1)), PartWait::kTimeout);
  pool_.store(0).AllowPayload(kTables + 3 * kPart);  // part 1 of a
  EXPECT_EQ(get.WaitPart(1, absl::Milliseconds(20)), PartWait::kTimeout);
  pool_.store(0).AllowPayload(kTables + 6 * kPart);  // all but part 3 of a; b is complete
  EXPECT_EQ(get.WaitPart(2), PartWait::kReady);
  EXPECT_EQ(get.PartsDone(), 3u);
  EXPECT_TRUE(TextOf(items[1].memory) == b);
  pool_.store(0).AllowPayload(UINT64_MAX);
  EXPECT_EQ(get.WaitPart(3), PartWait::kReady);
  EXPECT_EQ(get.WaitPart(1'000), PartWait::kReady);  // nobody has that one
  EXPECT_EQ(get.PartsDone(), PendingGet::kAllParts);
  EXPECT_TRUE(get.MissedSoFar().empty());
  PendingGet end = get;
  EXPECT_EQ(end.Take().CountOf(ChunkCode::kOk), 2u);
  EXPECT_TRUE(TextOf(items[0].memory) == a);
}

TEST_F(GetByPartTest, TheSlowerStoreCounts) {
  const std::string a = Stored("a", 1, 2 * kPart, 0);
  const std::string b = Stored("b", 2, 2 * kPart, 1);
  const std::vector<GetItem> items = {ItemToGet("a", a.size()), ItemToGet("b", b.size())};
  pool_.store(1).AllowPayload(100);
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  EXPECT_EQ(get.WaitPart(0, absl::Milliseconds(50)), PartWait::kTimeout);
  pool_.store(1).AllowPayload(16 + kPart);
  EXPECT_EQ(get.WaitPart(0), PartWait::kReady);
  EXPECT_EQ(get.PartsDone(), 1u);
  pool_.store(1).AllowPayload(UINT64_MAX);
  EXPECT_EQ(get.Take().CountOf(ChunkCode::kOk), 2u);
}

TEST_F(GetByPartTest, MissesAreKnownBeforeTheFirstBytes) {
  const std::string a = Stored("a", 1, 2 * kPart);
  const std::vector<GetItem> items = {ItemToGet("gone", kPart), ItemToGet("a", a.size()),
                                      ItemToGet("wrong length", 8'192)};
  Stored("wrong length", 3, 10'000);
  pool_.master().SetLookupAnswer(Id("gone"), {0});  // the master has not heard yet
  pool_.store(0).AllowPayload(0);
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  ASSERT_TRUE(Eventually([&] { return get.MissedSoFar().size() == 2; }));
  EXPECT_EQ(get.PartsDone(), 0u);
  std::vector<MissedChunk> missed = get.MissedSoFar();
  std::sort(missed.begin(), missed.end(),
            [](const auto& x, const auto& y) { return x.item < y.item; });
  EXPECT_EQ(missed[0].item, 0u);
  EXPECT_EQ(missed[0].code, ChunkCode::kNotFound);
  EXPECT_EQ(missed[0].parts_done, 0u);
  EXPECT_EQ(missed[1].item, 2u);
  EXPECT_EQ(missed[1].code, ChunkCode::kInvalidArgument);
  pool_.store(0).AllowPayload(16 + kPart);
  EXPECT_EQ(get.WaitPart(0), PartWait::kMissing);  // ready but for those two
  EXPECT_TRUE(HasPart(items[1], a, 0));
  pool_.store(0).AllowPayload(UINT64_MAX);
  const BatchResult result = get.Take();
  EXPECT_EQ(result.items[0].code, ChunkCode::kNotFound);
  EXPECT_EQ(result.items[1].code, ChunkCode::kOk);
  EXPECT_EQ(result.items[2].code, ChunkCode::kInvalidArgument);
}

// A chunk that is not where the cache says is looked for at once, not when the others are done.
TEST_F(GetByPartTest, MovedChunkIsFoundWhileTheOthersStream) {
  const std::string a = Stored("a", 1, 2 * kPart, 0);
  ASSERT_EQ(Put("b", PatternBytes(5, kPart)), ChunkCode::kOk);
  pool_.store(0).Erase(Name("b"));
  const std::string b = Stored("b", 2, kPart, 1);
  const std::vector<GetItem> items = {ItemToGet("a", a.size()), ItemToGet("b", b.size())};
  pool_.store(0).AllowPayload(16 + kPart);
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  EXPECT_EQ(get.WaitPart(0), PartWait::kReady);
  EXPECT_TRUE(TextOf(items[1].memory) == b);
  EXPECT_FALSE(get.Done());
  EXPECT_TRUE(get.MissedSoFar().empty());
  pool_.store(0).AllowPayload(UINT64_MAX);
  EXPECT_EQ(get.Take().CountOf(ChunkCode::kOk), 2u);
}

TEST_F(GetByPartTest, BadPartIsGotFromTheOtherReplicaBehindTheFront) {
  const std::string a = Stored("a", 1, 4 * kPart + 5, 1);
  StoredBad("a", 1, 4 * kPart + 5, /*part=*/2, 0);
  const GetItem item = ItemToGet("a", a.size());
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  const BatchResult result = get.Take();
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_TRUE(result.items[0].verified);
  EXPECT_TRUE(TextOf(item.memory) == a);
  // Parts 0 and 1 were in place: nobody asked for them again.
  const wire::GetRequest second = pool_.store(1).last_get();
  EXPECT_EQ(second.first_part(), 2u);
  EXPECT_EQ(second.part_count(), 0u);
  uint32_t room;
  std::memcpy(&room, second.target_lengths().data(), 4);
  EXPECT_EQ(room, 2 * kPart + 5);
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).bad_reports == 1; }));
}

TEST_F(GetByPartTest, ProgressHoldsWhileABadPartIsGotElsewhere) {
  const std::string a = Stored("a", 1, 4 * kPart, 1);
  StoredBad("a", 1, 4 * kPart, /*part=*/2, 0);
  const std::string b = Stored("b", 2, 4 * kPart, 0);
  const std::vector<GetItem> items = {ItemToGet("a", a.size()), ItemToGet("b", b.size())};
  pool_.store(1).AllowPayload(0);
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  // Store 0 sends all it has; part 2 of a is then for store 1 to send.
  ASSERT_TRUE(Eventually([&] { return pool_.store(1).gets == 1; }));
  EXPECT_EQ(get.PartsDone(), 2u);
  EXPECT_TRUE(get.MissedSoFar().empty());
  EXPECT_TRUE(TextOf(items[1].memory) == b);
  pool_.store(1).AllowPayload(32 + kPart);
  EXPECT_EQ(get.WaitPart(2), PartWait::kReady);
  EXPECT_TRUE(HasPart(items[0], a, 2));
  pool_.store(1).AllowPayload(UINT64_MAX);
  EXPECT_EQ(get.Take().CountOf(ChunkCode::kOk), 2u);
  EXPECT_TRUE(TextOf(items[0].memory) == a);
}

TEST_F(GetByPartTest, OtherReplicaWithAnotherChunkIsNoContinuation) {
  StoredBad("a", 1, 4 * kPart, /*part=*/2, 0);
  Stored("a", 77, 4 * kPart, 1);  // sound, but not the same
  const std::string front = PatternBytes(1, 4 * kPart).substr(0, 2 * kPart);
  const GetItem item = ItemToGet("a", 4 * kPart);
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  EXPECT_EQ(get.WaitPart(0), PartWait::kReady);
  EXPECT_EQ(get.WaitPart(3), PartWait::kMissing);
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  EXPECT_EQ(get.MissedSoFar()[0].code, ChunkCode::kDataLoss);
  EXPECT_EQ(get.MissedSoFar()[0].parts_done, 2u);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kDataLoss);
  EXPECT_TRUE(TextOf(item.memory).substr(0, 2 * kPart) == front);
}

TEST_F(GetByPartTest, BadChunkWithoutAReplicaIsMissedAtOnceAndHoldsNobodyUp) {
  StoredBad("a", 1, 4 * kPart, /*part=*/1);
  const std::string b = Stored("b", 2, 4 * kPart);
  const std::vector<GetItem> items = {ItemToGet("a", 4 * kPart), ItemToGet("b", b.size())};
  pool_.store(0).AllowPayload(64 + 6 * kPart);  // parts 0 to 2
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  EXPECT_EQ(get.WaitPart(2), PartWait::kMissing);
  EXPECT_FALSE(get.Done());
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  EXPECT_EQ(get.MissedSoFar()[0].item, 0u);
  EXPECT_EQ(get.MissedSoFar()[0].code, ChunkCode::kDataLoss);
  EXPECT_EQ(get.MissedSoFar()[0].parts_done, 1u);
  EXPECT_EQ(get.WaitPart(0), PartWait::kReady);  // that one it has
  EXPECT_TRUE(HasPart(items[1], b, 2));
  pool_.store(0).AllowPayload(UINT64_MAX);
  const BatchResult result = get.Take();
  EXPECT_EQ(result.items[0].code, ChunkCode::kDataLoss);
  EXPECT_EQ(result.items[1].code, ChunkCode::kOk);
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).bad_reports == 1; }));
  EXPECT_EQ(client_->stats().verify_failures, 1u);
}

TEST_F(GetByPartTest, LostConnectionIsMadeGoodByTheOtherReplica) {
  std::vector<GetItem> items;
  std::vector<std::string> texts;
  for (int i = 0; i < 8; ++i) {
    const std::string key = "k" + std::to_string(i);
    Stored(key, i, 6 * kPart, 0);
    texts.push_back(Stored(key, i, 6 * kPart, 1));
    items.push_back(ItemToGet(key, 6 * kPart));
  }
  pool_.store(0).set_get_fault(Fault::kCut);  // after 3 of the 6 parts
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  const BatchResult result = get.Take();
  ASSERT_EQ(result.CountOf(ChunkCode::kOk), 8u) << result.message;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(result.items[i].verified);
    EXPECT_TRUE(TextOf(items[i].memory) == texts[i]) << i;
  }
}

TEST_F(GetByPartTest, LostConnectionWithoutAReplicaLeavesWhatWasTold) {
  const std::string a = Stored("a", 1, 6 * kPart);
  const GetItem item = ItemToGet("a", a.size());
  pool_.store(0).set_get_fault(Fault::kCut);
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  EXPECT_EQ(get.WaitPart(5), PartWait::kMissing);
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  const MissedChunk missed = get.MissedSoFar()[0];
  EXPECT_EQ(missed.code, ChunkCode::kUnavailable);
  EXPECT_LE(missed.parts_done, 3u);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kUnavailable);
  EXPECT_TRUE(TextOf(item.memory).substr(0, missed.parts_done * kPart) ==
              a.substr(0, missed.parts_done * kPart));
}

TEST_F(GetByPartTest, EventFdTellsOfEachPart) {
  const std::string a = Stored("a", 1, 8 * kPart);
  const GetItem item = ItemToGet("a", a.size());
  pool_.store(0).AllowPayload(0);
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  uint32_t seen = 0;
  uint64_t allowed = 64;
  while (seen < 8) {
    allowed += kPart;
    pool_.store(0).AllowPayload(allowed);
    pollfd fd = {.fd = get.PartEventFd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&fd, 1, 20'000), 1);
    uint64_t count;
    ASSERT_EQ(read(fd.fd, &count, sizeof(count)), ssize_t{sizeof(count)});
    const uint32_t done = std::min(get.PartsDone(), 8u);
    ASSERT_GT(done, seen);
    for (uint32_t p = seen; p < done; ++p) EXPECT_TRUE(HasPart(item, a, p)) << p;
    seen = done;
  }
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kOk);
}

TEST_F(GetByPartTest, ManyThreadsWaitForDifferentParts) {
  const std::string a = Stored("a", 1, 32 * kPart);
  const GetItem item = ItemToGet("a", a.size());
  const PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t part = t; part < 32; part += 8) {
        if (get.WaitPart(part) == PartWait::kReady && HasPart(item, a, part)) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 32);
}

TEST_F(GetByPartTest, SilentStoreEndsTheWaitAtTheDeadline) {
  Stored("a", 1, 2 * kPart);
  const GetItem item = ItemToGet("a", 2 * kPart);
  pool_.store(0).set_get_fault(Fault::kNever);
  GetOptions options = ByPart();
  options.deadline = absl::Milliseconds(100);
  PendingGet get = ns_->BatchGetAsync({&item, 1}, options);
  EXPECT_EQ(get.WaitPart(0), PartWait::kMissing);
  EXPECT_EQ(get.MissedSoFar()[0].code, ChunkCode::kDeadlineExceeded);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kDeadlineExceeded);
}

TEST_F(GetByPartTest, CancelEndsTheWait) {
  Stored("a", 1, 2 * kPart);
  const GetItem item = ItemToGet("a", 2 * kPart);
  pool_.store(0).AllowPayload(16 + kPart);
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  ASSERT_EQ(get.WaitPart(0), PartWait::kReady);
  std::thread waiter([&] { EXPECT_EQ(get.WaitPart(1), PartWait::kMissing); });
  get.Cancel();
  waiter.join();
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  EXPECT_EQ(get.MissedSoFar()[0].parts_done, 1u);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kCancelled);
}

TEST_F(GetByPartTest, ByChunkPartsAreThereAtTheEnd) {
  const std::string a = Stored("a", 1, 4 * kPart);
  const std::vector<GetItem> items = {ItemToGet("a", a.size()), ItemToGet("gone", kPart)};
  pool_.store(0).AllowPayload(32 + 2 * kPart);
  PendingGet get = ns_->BatchGetAsync(items);
  EXPECT_EQ(get.WaitPart(0, absl::Milliseconds(20)), PartWait::kTimeout);
  EXPECT_EQ(get.PartsDone(), 0u);
  pool_.store(0).AllowPayload(UINT64_MAX);
  EXPECT_EQ(get.WaitPart(0), PartWait::kMissing);
  EXPECT_EQ(get.PartsDone(), PendingGet::kAllParts);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kOk);
}

TEST_F(GetByPartTest, RunsAndRangesCountPartsByTheirNumberInTheChunk) {
  const std::string a = Stored("a", 1, 8 * kPart);
  const std::string b = Stored("b", 2, 8 * kPart, 1);
  std::vector<GetItem> items = {ItemToGet("a", 3 * kPart), ItemToGet("b", 2 * kPart + 10)};
  items[0].first_part = 4;
  items[0].part_count = 3;
  items[1].range_offset = 5 * kPart - 5;  // the end of part 4, parts 5 and 6, 5 bytes of 7
  items[1].range_bytes = 2 * kPart + 10;
  pool_.store(0).AllowPayload(64 + kPart);
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  EXPECT_EQ(get.WaitPart(3), PartWait::kReady);  // nobody asks for 0 to 3
  EXPECT_EQ(get.WaitPart(4), PartWait::kReady);
  EXPECT_EQ(get.PartsDone(), 5u);
  pool_.store(0).AllowPayload(UINT64_MAX);
  const BatchResult result = get.Take();
  ASSERT_EQ(result.CountOf(ChunkCode::kOk), 2u) << result.message;
  EXPECT_TRUE(result.items[0].verified);
  EXPECT_FALSE(result.items[1].verified);  // it cuts parts
  EXPECT_TRUE(TextOf(items[0].memory) == a.substr(4 * kPart, 3 * kPart));
  EXPECT_TRUE(TextOf(items[1].memory) == b.substr(5 * kPart - 5, 2 * kPart + 10));
}

TEST_F(GetByPartTest, RunBehindAFrontIsTheRestOfTheRun) {
  const std::string a = Stored("a", 1, 8 * kPart, 1);
  StoredBad("a", 1, 8 * kPart, /*part=*/5, 0);
  GetItem run = ItemToGet("a", 4 * kPart);
  run.first_part = 3;
  run.part_count = 4;
  BatchResult result = ns_->BatchGet({&run, 1}, ByPart());
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_TRUE(TextOf(run.memory) == a.substr(3 * kPart, 4 * kPart));
  EXPECT_EQ(pool_.store(1).last_get().first_part(), 5u);
  EXPECT_EQ(pool_.store(1).last_get().part_count(), 2u);

  GetItem range = ItemToGet("a", 4 * kPart + 9);
  range.range_offset = 3 * kPart;
  range.range_bytes = 4 * kPart + 9;
  result = ns_->BatchGet({&range, 1}, ByPart());
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_FALSE(result.items[0].verified);
  EXPECT_TRUE(TextOf(range.memory) == a.substr(3 * kPart, 4 * kPart + 9));
  uint64_t offset;
  std::memcpy(&offset, pool_.store(1).last_get().range_offsets().data(), 8);
  EXPECT_EQ(offset, 5 * kPart);
}

// All of the shorter range has landed when the connection is cut, and its last part is under no
// digest: nothing says yet that the store stands by that. Those before it are verified.
TEST_F(GetByPartTest, CutLastPartIsGotFromTheOtherReplicaBehindTheVerifiedOnes) {
  std::vector<GetItem> items = {ItemToGet("a", 2 * kPart + 9), ItemToGet("b", 8 * kPart)};
  std::vector<std::string> texts;
  for (const int store : {0, 1}) {
    texts = {Stored("a", 1, 8 * kPart, store), Stored("b", 2, 8 * kPart, store)};
  }
  items[0].range_bytes = 2 * kPart + 9;
  items[1].range_bytes = 8 * kPart;
  pool_.store(0).set_get_fault(Fault::kCut);  // with the first half of the third part of b
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  const BatchResult result = get.Take();
  ASSERT_EQ(result.CountOf(ChunkCode::kOk), 2u) << result.message;
  EXPECT_GT(pool_.store(1).gets, 0);
  EXPECT_TRUE(TextOf(items[0].memory) == texts[0].substr(0, 2 * kPart + 9));
  EXPECT_TRUE(TextOf(items[1].memory) == texts[1]);
}

// What came without any check cannot be told apart from another chunk's: no mixtures.
TEST_F(GetByPartTest, FrontWithoutDigestsIsNotContinuedElsewhere) {
  const std::string a = PatternBytes(1, 6 * kPart);
  for (const int store : {0, 1}) {
    pool_.store(store).Add(Name("a"), {.bytes = a, .part_bytes = kPart, .digests = false});
  }
  pool_.store(0).set_get_fault(Fault::kCut);
  GetItem item = ItemToGet("a", a.size());
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  const BatchResult result = get.Take();
  // Cut before the first part had arrived, the other replica may be asked for all of it.
  if (result.items[0].code == ChunkCode::kOk) {
    EXPECT_TRUE(TextOf(item.memory) == a);
    EXPECT_EQ(pool_.store(1).last_get().first_part(), 0u);
  } else {
    EXPECT_EQ(result.items[0].code, ChunkCode::kUnavailable);
    EXPECT_GT(get.MissedSoFar().at(0).parts_done, 0u);
    EXPECT_EQ(pool_.store(1).gets, 0);
  }
}

TEST_F(GetByPartTest, BatchBeyondTheBudgetIsStillOneRequestAStore) {
  ClientOptions options = pool_.options();
  options.max_inflight_bytes = 1 << 20;
  buffer_ = Buffer();
  Connect(options);
  std::vector<GetItem> items;
  for (int i = 0; i < 12; ++i) {
    const std::string key = "k" + std::to_string(i);
    Stored(key, i, 8 * kPart, i % 2);
    items.push_back(ItemToGet(key, 8 * kPart));
  }
  const BatchResult result = ns_->BatchGet(items, ByPart());
  EXPECT_EQ(result.CountOf(ChunkCode::kOk), 12u) << result.message;
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(TextOf(items[i].memory) == PatternBytes(i, 8 * kPart));
  EXPECT_EQ(pool_.store(0).gets, 1);
  EXPECT_EQ(pool_.store(1).gets, 1);
  // The budget was given back.
  EXPECT_EQ(ns_->BatchGet(items, ByPart()).CountOf(ChunkCode::kOk), 12u);
  EXPECT_EQ(ns_->BatchGet(items).CountOf(ChunkCode::kOk), 12u);
}

TEST_F(GetByPartTest, WithoutAClientEveryChunkIsMissing) {
  Stored("a", 1, 2 * kPart);
  const GetItem item = ItemToGet("a", 2 * kPart);
  client_.reset();
  PendingGet get = ns_->BatchGetAsync({&item, 1}, ByPart());
  EXPECT_EQ(get.WaitPart(0), PartWait::kMissing);
  EXPECT_EQ(get.PartsDone(), PendingGet::kAllParts);
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  pollfd fd = {.fd = get.PartEventFd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&fd, 1, 0), 1);
  EXPECT_THAT(get.Take().status, StatusIs(absl::StatusCode::kFailedPrecondition));
}

// --- Who checks ------------------------------------------------------------------------------

class VerifyTest : public GetByPartTest {
 protected:
  void Open(const NamespaceOptions& options) {
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("other", "v1", options));
  }
};

TEST_F(VerifyTest, OffTakesWhatComesAndSaysSo) {
  Open({.verify = Verify::kOff});
  const std::string a = Stored("a", 1, 3 * kPart);
  for (const GetOptions& options : {GetOptions(), ByPart()}) {
    const GetItem item = ItemToGet("a", a.size());
    const BatchResult result = ns_->BatchGet({&item, 1}, options);
    EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
    EXPECT_FALSE(result.items[0].verified);
    EXPECT_TRUE(TextOf(item.memory) == a);
  }
  StoredBad("bad", 2, 2 * kPart, 1);
  const GetItem item = ItemToGet("bad", 2 * kPart);
  const BatchResult result = ns_->BatchGet({&item, 1});
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
  EXPECT_FALSE(result.items[0].verified);
}

TEST_F(VerifyTest, SampledChecksSomeAndFindsWhatIsBad) {
  Open({.verify = Verify::kSampled});
  const std::string a = Stored("a", 1, 8'192);
  const GetItem item = ItemToGet("a", a.size());
  int verified = 0;
  constexpr int kGets = 800;
  for (int i = 0; i < kGets; ++i) {
    const BatchResult result = ns_->BatchGet({&item, 1});
    ASSERT_EQ(result.items[0].code, ChunkCode::kOk);
    verified += result.items[0].verified ? 1 : 0;
  }
  // A binomial with mean 50 and deviation 7: beyond 8 of them once in 10^14.
  EXPECT_GT(verified, 0);
  EXPECT_LT(verified, 110);
  StoredBad("bad", 2, 8'192, 0);
  const GetItem bad = ItemToGet("bad", 8'192);
  int gets = 0;
  while (ns_->BatchGet({&bad, 1}).items[0].code == ChunkCode::kOk) ASSERT_LT(++gets, 1'000);
  ASSERT_TRUE(Eventually([&] { return pool_.store(0).bad_reports > 0; }));
}

TEST_F(VerifyTest, WithoutDigestsThereIsNothingToVerify) {
  Open({.digest = false});
  const std::string text = PatternBytes(1, 3 * kPart);
  ASSERT_EQ(Put("a", text), ChunkCode::kOk);
  EXPECT_EQ(Get("a", text.size()), std::pair(ChunkCode::kOk, text));
  EXPECT_FALSE(last_.verified);
  GetItem run = ItemToGet("a", 100);
  run.range_offset = 70'000;
  run.range_bytes = 100;
  const BatchResult result = ns_->BatchGet({&run, 1}, ByPart());
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
  EXPECT_FALSE(result.items[0].verified);
  EXPECT_EQ(TextOf(run.memory), text.substr(70'000, 100));
}

}  // namespace
}  // namespace cistern
