// Bits that flip in a running store's memory: readers never see wrong bytes, the store drops what
// is bad and says so, and the key can be put again.
#include <memory>
#include <string>

#include "tests/integration/client/pool_fixture.h"
#include "tests/integration/client/segment_file.h"

namespace cistern {
namespace {

class RotTest : public PoolFixture {
 protected:
  static constexpr uint64_t kOnePart = 100'000;
  static constexpr uint64_t kManyParts = 1'000'003;  // 16 parts of 64 KiB

  void SetUp() override {
    StartPool(uint64_t{64} << 20, /*stores=*/1);
    segment_ = std::make_unique<SegmentFile>(pool_->segment_dir() + "/store-0/dram-0");
  }
  ChunkCode PutChunk(const std::string& key, uint64_t bytes) {
    PutOptions options = Visible();
    options.part_bytes = bytes == kManyParts ? 65'536 : 0;
    return Put(key, 7, bytes, options);
  }
  uint64_t HeaderOf(const std::string& key) const {
    const auto header = segment_->HeaderOf(Id(key));
    EXPECT_TRUE(header.has_value());
    return header.value_or(0);
  }
  // The chunk is rotten: no get brings it, and it is gone soon; then it is put again and is whole.
  void ExpectMissThenPutAgain(const std::string& key, uint64_t bytes, GetOrder order) {
    GetOptions options;
    options.order = order;
    const ChunkCode code = Get(key, bytes, options);
    EXPECT_TRUE(code == ChunkCode::kDataLoss || code == ChunkCode::kNotFound)
        << ChunkCodeName(code);
    EXPECT_TRUE(Eventually([&] { return Get(key, bytes, options) == ChunkCode::kNotFound; }));
    // The master hears of it within milliseconds; until then it says that the chunk is there.
    EXPECT_TRUE(Eventually([&] { return PutChunk(key, bytes) == ChunkCode::kOk; })) << message_;
    EXPECT_EQ(Get(key, bytes, options), ChunkCode::kOk) << message_;
    EXPECT_TRUE(last_.verified);
    EXPECT_TRUE(Brought(7, bytes));
    ++dropped_;
    // What `cisternctl stats` shows.
    EXPECT_TRUE(Eventually([&] {
      const admin::StoreStats store = Stats().stores(0);
      const auto corrupt = store.removed_by_cause().find("corrupt");
      return store.verify_failures() == dropped_ && corrupt != store.removed_by_cause().end() &&
             corrupt->second == dropped_;
    })) << dropped_;
  }

  std::unique_ptr<SegmentFile> segment_;
  uint64_t dropped_ = 0;
};

TEST_F(RotTest, Payload) {
  for (const GetOrder order : {GetOrder::kByChunk, GetOrder::kByPart}) {
    for (const uint64_t bytes : {kOnePart, kManyParts}) {
      for (const uint64_t at : {uint64_t{0}, bytes / 2, bytes - 1}) {
        const std::string key = std::to_string(bytes) + "/" + std::to_string(at) + "/" +
                                std::to_string(static_cast<int>(order));
        ASSERT_EQ(PutChunk(key, bytes), ChunkCode::kOk);
        ASSERT_EQ(Get(key, bytes), ChunkCode::kOk);
        segment_->FlipBit(segment_->PayloadOf(HeaderOf(key)) + at, static_cast<int>(at % 8));
        ExpectMissThenPutAgain(key, bytes, order);
      }
    }
  }
}

TEST_F(RotTest, PartTable) {
  for (const GetOrder order : {GetOrder::kByChunk, GetOrder::kByPart}) {
    const std::string key = "table" + std::to_string(static_cast<int>(order));
    ASSERT_EQ(PutChunk(key, kManyParts), ChunkCode::kOk);
    segment_->FlipBit(segment_->PartTableOf(HeaderOf(key)) + 8 * 9 + 3, 5);
    ExpectMissThenPutAgain(key, kManyParts, order);
  }
}

// A run of parts whose own digests are sound: the root says that the table is not.
TEST_F(RotTest, PartTableElsewhereThanInTheRun) {
  ASSERT_EQ(PutChunk("run", kManyParts), ChunkCode::kOk);
  segment_->FlipBit(segment_->PartTableOf(HeaderOf("run")) + 8 * 15, 0);
  const Span span{At(kBufferBytes / 2), 131'072};
  GetItem item{.id = Id("run"), .memory = {.spans = {&span, 1}}};
  item.first_part = 2;
  item.part_count = 2;
  EXPECT_EQ(ns_->BatchGet({&item, 1}).items[0].code, ChunkCode::kDataLoss);
  ExpectMissThenPutAgain("run", kManyParts, GetOrder::kByChunk);
}

// Every field that the store or a reader goes by: offset and length of the payload, the digest of a
// single part, the root, the part size, the kind of digest, the name.
TEST_F(RotTest, Header) {
  const struct {
    uint64_t offset;
    int bit;
  } flips[] = {{8, 0},  {24, 1}, {40, 2}, {51, 3}, {52, 0},  {57, 4},  {64, 5},
               {80, 6}, {89, 0}, {92, 1}, {94, 0}, {101, 2}, {104, 7}, {121, 3}};
  for (const uint64_t bytes : {kOnePart, kManyParts}) {
    for (const auto& flip : flips) {
      const std::string key = std::to_string(bytes) + "@" + std::to_string(flip.offset);
      SCOPED_TRACE(key);
      ASSERT_EQ(PutChunk(key, bytes), ChunkCode::kOk);
      segment_->FlipBit(HeaderOf(key) + flip.offset, flip.bit);
      ExpectMissThenPutAgain(key, bytes, GetOrder::kByChunk);
    }
  }
}

// A get by part that runs into rot says how far it is good, and leaves that alone.
TEST_F(RotTest, ByPartTellsWhichPartsAreGood) {
  ASSERT_EQ(PutChunk("a", kManyParts), ChunkCode::kOk);
  segment_->FlipBit(segment_->PayloadOf(HeaderOf("a")) + 5 * 65'536 + 11, 2);
  const Span span{At(kBufferBytes / 2), kManyParts};
  const GetItem item{.id = Id("a"), .memory = {.spans = {&span, 1}}};
  GetOptions options;
  options.order = GetOrder::kByPart;
  PendingGet get = ns_->BatchGetAsync({&item, 1}, options);
  EXPECT_EQ(get.WaitPart(4), PartWait::kReady);
  EXPECT_EQ(get.WaitPart(5), PartWait::kMissing);
  ASSERT_EQ(get.MissedSoFar().size(), 1u);
  EXPECT_EQ(get.MissedSoFar()[0].parts_done, 5u);
  EXPECT_EQ(get.MissedSoFar()[0].code, ChunkCode::kDataLoss);
  EXPECT_EQ(get.Take().items[0].code, ChunkCode::kDataLoss);
  EXPECT_TRUE(std::string_view(At(kBufferBytes / 2), 5 * 65'536) ==
              PatternBytes(7, kManyParts).substr(0, 5 * 65'536));
  ExpectMissThenPutAgain("a", kManyParts, GetOrder::kByPart);
}

// --- What namespaces promise that check less
// ------------------------------------------------------

class LessCheckedTest : public RotTest {
 protected:
  void Open(const NamespaceOptions& options) {
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("less", "v1", options));
  }
  void FlipPayload(const std::string& key) {
    segment_->FlipBit(segment_->PayloadOf(HeaderOf(key)) + 1'000, 1);
  }
};

TEST_F(LessCheckedTest, SampledFindsItAfterSomeGetsAndNeverCallsItVerified) {
  Open({.verify = Verify::kSampled});
  ASSERT_EQ(PutChunk("a", kOnePart), ChunkCode::kOk);
  int verified = 0;
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(Get("a", kOnePart), ChunkCode::kOk);
    verified += last_.verified ? 1 : 0;
  }
  // Mean 25, deviation 5.
  EXPECT_GT(verified, 0);
  EXPECT_LT(verified, 100);
  FlipPayload("a");
  int gets = 0;
  while (Get("a", kOnePart) == ChunkCode::kOk) {
    ASSERT_FALSE(last_.verified);
    ASSERT_LT(++gets, 1'000);
  }
  EXPECT_TRUE(Eventually([&] { return Get("a", kOnePart) == ChunkCode::kNotFound; }));
}

TEST_F(LessCheckedTest, OffIsNeverCalledVerified) {
  Open({.verify = Verify::kOff});
  ASSERT_EQ(PutChunk("a", kManyParts), ChunkCode::kOk);
  ASSERT_EQ(Get("a", kManyParts), ChunkCode::kOk);
  EXPECT_FALSE(last_.verified);
  EXPECT_TRUE(Brought(7, kManyParts));
  FlipPayload("a");  // what no reader checks goes unseen while the store runs
  ASSERT_EQ(Get("a", kManyParts), ChunkCode::kOk);
  EXPECT_FALSE(last_.verified);
}

TEST_F(LessCheckedTest, WithoutDigestsRotGoesUnseenInThePayloadButNotInTheHeader) {
  Open({.digest = false});
  ASSERT_EQ(PutChunk("a", kManyParts), ChunkCode::kOk);
  ASSERT_EQ(Get("a", kManyParts), ChunkCode::kOk);
  EXPECT_FALSE(last_.verified);
  EXPECT_TRUE(Brought(7, kManyParts));
  FlipPayload("a");
  ASSERT_EQ(Get("a", kManyParts), ChunkCode::kOk);
  EXPECT_FALSE(last_.verified);
  // Where the bytes are, and how many, is kept from rot in any case.
  segment_->FlipBit(HeaderOf("a") + 50, 4);
  EXPECT_EQ(Get("a", kManyParts), ChunkCode::kNotFound);
}

}  // namespace
}  // namespace cistern
