// Gets layer by layer, against real stores.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/integration/client/pool_fixture.h"

namespace cistern {
namespace {

class ByPartTest : public PoolFixture {
 protected:
  void SetUp() override { StartPool(uint64_t{256} << 20); }
  static GetOptions ByPart() {
    GetOptions options;
    options.order = GetOrder::kByPart;
    return options;
  }
};

// An engine's paged KV cache: a chunk is one unit of the layout, a part is one layer's piece of it.
TEST_F(ByPartTest, LayersOfALayoutAreUsedAsTheyCome) {
  constexpr uint64_t kPiece = 32'768;
  constexpr uint64_t kLayers = 32;
  constexpr uint32_t kUnits = 40;
  Layout layout;
  for (uint64_t l = 0; l < kLayers; ++l) layout.bases.push_back(At(l * kPiece * kUnits));
  layout.unit_stride_bytes = kPiece;
  layout.piece_bytes = kPiece;
  layout.unit_count = kUnits;
  ASSERT_OK_AND_ASSIGN(const LayoutId id, client_->RegisterLayout(layout));
  const uint64_t total = kLayers * kPiece * kUnits;
  FillPattern(3, At(0), total);
  const std::string before(At(0), total);
  std::vector<PutItem> puts;
  std::vector<GetItem> gets;
  PutOptions options = Visible();
  options.part_bytes = kPiece;
  for (uint32_t u = 0; u < kUnits; ++u) {
    puts.push_back({.id = Id("u" + std::to_string(u)), .memory = {.layout = id, .unit = u}});
    gets.push_back({.id = Id("u" + std::to_string(u)), .memory = {.layout = id, .unit = u}});
    options.affinity = uint64_t{u} << 56;  // in both stores
    ASSERT_EQ(ns_->BatchPut({&puts.back(), 1}, options).items[0].code, ChunkCode::kOk);
  }
  for (int round = 0; round < 5; ++round) {
    std::memset(At(0), 0, total);
    PendingGet get = ns_->BatchGetAsync(gets, ByPart());
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ASSERT_EQ(get.WaitPart(layer), PartWait::kReady);
      const uint64_t at = layer * kPiece * kUnits;
      ASSERT_EQ(std::memcmp(At(at), before.data() + at, kPiece * kUnits), 0) << layer;
    }
    const BatchResult result = get.Take();
    ASSERT_EQ(result.CountOf(ChunkCode::kOk), kUnits) << result.message;
    for (const ChunkResult& item : result.items) EXPECT_TRUE(item.verified);
  }
}

TEST_F(ByPartTest, ChunksOfManyShapesRunsAndRanges) {
  struct Case {
    uint64_t bytes, part_bytes;
    uint32_t first_part, part_count;
    uint64_t range_offset, range_bytes;
    uint64_t begin, end;  // what comes
    bool verified;
  };
  const Case cases[] = {
      {4'096, 0, 0, 0, 0, 0, 0, 4'096, true},
      {5'000'001, 0, 0, 0, 0, 0, 0, 5'000'001, true},
      {3'000'000, 4'096, 0, 0, 0, 0, 0, 3'000'000, true},
      {3'000'000, 65'536, 7, 2, 0, 0, 458'752, 589'824, true},
      {3'000'000, 65'536, 45, 0, 0, 0, 2'949'120, 3'000'000, true},
      {3'000'000, 65'536, 0, 0, 65'536, 131'072, 65'536, 196'608, true},
      {3'000'000, 65'536, 0, 0, 65'535, 131'073, 65'535, 196'608, false},
      {3'000'000, 65'536, 0, 0, 100, 200, 100, 300, false},
  };
  for (const GetOptions& order : {GetOptions(), ByPart()}) {
    std::vector<GetItem> items;
    std::vector<std::vector<Span>> spans(std::size(cases));
    uint64_t at = kBufferBytes / 2;
    for (size_t i = 0; i < std::size(cases); ++i) {
      const Case& c = cases[i];
      PutOptions options;
      options.part_bytes = c.part_bytes;
      const ChunkCode put = Put("c" + std::to_string(i), i, c.bytes, options);
      ASSERT_TRUE(put == ChunkCode::kOk || put == ChunkCode::kPresent) << message_;
      for (uint64_t left = c.end - c.begin; left > 0;) {  // in uneven spans
        const uint64_t n = std::min<uint64_t>(left, 99'991);
        spans[i].push_back({At(at), n});
        at += n + 3;
        left -= n;
      }
      GetItem item{.id = Id("c" + std::to_string(i)), .memory = {.spans = spans[i]}};
      item.first_part = c.first_part;
      item.part_count = c.part_count;
      item.range_offset = c.range_offset;
      item.range_bytes = c.range_bytes;
      items.push_back(item);
    }
    const BatchResult result = ns_->BatchGet(items, order);
    for (size_t i = 0; i < std::size(cases); ++i) {
      const Case& c = cases[i];
      EXPECT_EQ(result.items[i].code, ChunkCode::kOk) << i << " " << result.message;
      EXPECT_EQ(result.items[i].verified, c.verified) << i;
      std::string got;
      for (const Span& span : spans[i]) got.append(static_cast<char*>(span.data), span.bytes);
      EXPECT_TRUE(got == PatternBytes(i, c.bytes).substr(c.begin, c.end - c.begin)) << i;
    }
  }
}

TEST_F(ByPartTest, StoreKilledMidwayLeavesTheTruth) {
  constexpr uint64_t kBytes = 4 << 20;
  constexpr uint64_t kPart = 65'536;
  std::vector<Span> spans;
  std::vector<GetItem> items;
  spans.reserve(16);
  for (uint64_t i = 0; i < 16; ++i) {
    PutOptions options = Visible();
    options.part_bytes = kPart;
    options.affinity = i << 56;
    ASSERT_EQ(Put("k" + std::to_string(i), i, kBytes, options), ChunkCode::kOk);
    spans.push_back({At(kBufferBytes / 2 + i * kBytes), kBytes});
    items.push_back({.id = Id("k" + std::to_string(i)), .memory = {.spans = {&spans.back(), 1}}});
  }
  PendingGet get = ns_->BatchGetAsync(items, ByPart());
  get.WaitPart(3);
  kill(store_pid(0), SIGKILL);
  // The others' parts go on, whatever was lost.
  EXPECT_NE(get.WaitPart(kBytes / kPart - 1), PartWait::kTimeout);
  std::vector<uint64_t> parts(16, kBytes / kPart);
  for (const MissedChunk& missed : get.MissedSoFar()) parts[missed.item] = missed.parts_done;
  const BatchResult result = get.Take();
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(result.items[i].code == ChunkCode::kOk, parts[i] == kBytes / kPart) << i;
    EXPECT_TRUE(std::string_view(At(kBufferBytes / 2 + i * kBytes), parts[i] * kPart) ==
                PatternBytes(i, kBytes).substr(0, parts[i] * kPart))
        << i;
  }
}

}  // namespace
}  // namespace cistern
