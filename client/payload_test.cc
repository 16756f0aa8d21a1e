// Both payload streams: what a put sends, and where a get's bytes land and what it thinks of them.
#include <algorithm>
#include <cstring>

#include "base/test_util.h"
#include "client/get_payload.h"
#include "client/put_payload.h"

namespace cistern {
namespace {

using Verdict = GetPayload::Verdict;

ChunkName Name(uint8_t n) {
  ChunkName name;
  name.id.bytes[0] = n;
  name.shard = Shard(3);
  return name;
}

// What the format says of a chunk's part digests, cut out of the whole by hand.
std::vector<PartDigest> PartDigests(std::string_view bytes, uint64_t part_bytes) {
  std::vector<PartDigest> digests;
  for (size_t at = 0; at < bytes.size(); at += part_bytes) {
    const std::string_view part = bytes.substr(at, part_bytes);
    digests.push_back(DigestOf(part.data(), part.size()));
  }
  return digests;
}
std::string AsBytes(absl::Span<const PartDigest> digests) {
  return {reinterpret_cast<const char*>(digests.data()), digests.size() * 8};
}

// Cuts `bytes` of memory into spans of `piece` bytes each (the last is shorter).
std::vector<Span> Cut(std::string* memory, uint64_t piece) {
  std::vector<Span> spans;
  for (size_t at = 0; at < memory->size(); at += piece) {
    spans.push_back({memory->data() + at, std::min<uint64_t>(piece, memory->size() - at)});
  }
  return spans;
}

std::string Drain(PutPayload* source, size_t max_bytes, size_t max_pieces) {
  std::string out;
  while (source->remaining() > 0) {
    std::vector<iovec> pieces;
    source->NextPieces(max_bytes, max_pieces, &pieces);
    EXPECT_LE(pieces.size(), max_pieces);
    size_t sum = 0;
    for (const iovec& piece : pieces) {
      out.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      sum += piece.iov_len;
    }
    EXPECT_GT(sum, 0u);
    EXPECT_LE(sum, max_bytes);
  }
  return out;
}

class PutPayloadTest : public ::testing::TestWithParam<std::tuple<size_t, size_t, uint64_t>> {};

TEST_P(PutPayloadTest, BytesThenPartDigestsOfEachChunk) {
  const auto [max_bytes, max_pieces, span_bytes] = GetParam();
  std::string first = PatternBytes(1, 700'001);
  std::string second = PatternBytes(2, 4096);
  const auto first_spans = Cut(&first, span_bytes);
  const auto second_spans = Cut(&second, span_bytes);
  ASSERT_OK_AND_ASSIGN(const PartLayout first_layout, PartLayout::Make(700'001, 65'536));
  ASSERT_OK_AND_ASSIGN(const PartLayout second_layout, PartLayout::Make(4096, 0));
  PutPayload source({{MemoryRef(first_spans, first.size()), first_layout},
                     {MemoryRef(second_spans, second.size()), second_layout}},
                    /*digest=*/true);
  // 700,001 bytes in parts of 64 KiB are 11.
  EXPECT_EQ(source.remaining(), 700'001u + 11 * 8 + 4096 + 8);
  EXPECT_EQ(Drain(&source, max_bytes, max_pieces), first + AsBytes(PartDigests(first, 65'536)) +
                                                       second + AsBytes(PartDigests(second, 4096)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, PutPayloadTest,
                         ::testing::Values(std::tuple(size_t{1} << 30, 1000u, 1u << 20),
                                           std::tuple(100'000u, 64u, 5'000u),
                                           std::tuple(65'536u, 1u, 65'536u),
                                           std::tuple(777u, 3u, 1'001u)));

TEST(PutPayloadTest, WithoutDigestsOnlyBytes) {
  std::string bytes = PatternBytes(1, 300'000);
  const auto spans = Cut(&bytes, 100'000);
  ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(bytes.size(), 0));
  PutPayload source({{MemoryRef(spans, bytes.size()), layout}}, /*digest=*/false);
  EXPECT_EQ(source.remaining(), 300'000u);
  EXPECT_EQ(Drain(&source, 1 << 20, 2), bytes);
}

// How bytes come to a sink: into its buffers, or from memory that it copies them out of, or both.
enum class Way { kLanded, kTaken, kMixed };

class GetPayloadTest : public ::testing::TestWithParam<Way> {
 protected:
  // Feeds a stream into a sink as a wire would: `step` bytes arrive at a time.
  static void Feed(GetPayload* sink, std::string_view stream, size_t step, size_t max_pieces) {
    for (int turn = 0; !stream.empty(); ++turn) {
      const std::string_view now = stream.substr(0, step);
      stream.remove_prefix(now.size());
      const bool take = GetParam() == Way::kTaken || (GetParam() == Way::kMixed && turn % 2 == 0);
      if (take) {
        // A copy that goes when it was taken: what is kept of it would be seen.
        const std::string memory(now);
        size_t taken = 0;
        ASSERT_OK(sink->TakeFrom(memory.data(), memory.size(), &taken));
        ASSERT_EQ(taken, now.size());
      } else {
        Land(sink, now, max_pieces);
      }
    }
  }

 private:
  static void Land(GetPayload* sink, std::string_view now, size_t max_pieces) {
    size_t fed = 0;
    while (fed < now.size()) {
      std::vector<iovec> buffers;
      sink->NextBuffers(now.size() - fed, max_pieces, &buffers);
      ASSERT_FALSE(buffers.empty());
      ASSERT_LE(buffers.size(), max_pieces);
      size_t landed = 0;
      for (const iovec& buffer : buffers) {
        std::memcpy(buffer.iov_base, now.data() + fed + landed, buffer.iov_len);
        landed += buffer.iov_len;
      }
      ASSERT_OK(sink->Landed(landed));
      fed += landed;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, GetPayloadTest,
                         ::testing::Values(Way::kLanded, Way::kTaken, Way::kMixed));

// A chunk as a store has it, and one target.
struct Chunk {
  Chunk(uint8_t seed, uint64_t length, uint64_t part_bytes, uint64_t span_bytes = 1 << 30)
      : bytes(PatternBytes(seed, length)), target(length, '\0'), spans(Cut(&target, span_bytes)) {
    get.layout = *PartLayout::Make(length, part_bytes);
    get.name = Name(seed);
    get.memory = MemoryRef(spans, length);
    digests = PartDigests(bytes, get.layout.part_bytes);
    get.root = RootDigest(digests, length, get.name);
  }
  Chunk(const Chunk&) = delete;
  std::string Table() const { return get.table ? AsBytes(digests) : ""; }
  // What `get` selects of one part.
  std::string Part(uint64_t part) const {
    const uint64_t begin = std::max(get.begin, part * get.layout.part_bytes);
    const uint64_t end = std::min(get.end, (part + 1) * get.layout.part_bytes);
    return begin < end ? bytes.substr(begin, end - begin) : "";
  }
  // The stream that answers what `get` selects, by chunk.
  std::string Stream() const { return Table() + bytes.substr(get.begin, get.end - get.begin); }
  std::string bytes;
  std::string target;
  std::vector<Span> spans;
  std::vector<PartDigest> digests;
  GetChunk get;
};

TEST_P(GetPayloadTest, ScattersAndVerifiesHoweverTheBytesArrive) {
  for (const size_t step : {size_t{1} << 30, size_t{65'536}, size_t{1'237}}) {
    for (const size_t max_pieces : {1000u, 2u}) {
      Chunk a(1, 300'000, 65'536, 5'000);
      Chunk b(2, 4096, 0);
      ASSERT_OK(SelectWhole(true, &a.get));
      ASSERT_OK(SelectWhole(true, &b.get));
      GetPayload sink({a.get, b.get}, GetOrder::kByChunk, nullptr);
      EXPECT_EQ(sink.stream_bytes(), 300'000u + 5 * 8 + 4096 + 8);
      const std::string stream = a.Stream() + b.Stream();
      EXPECT_EQ(sink.verdict(0), Verdict::kPending);
      Feed(&sink, stream, step, max_pieces);
      EXPECT_EQ(sink.verdict(0), Verdict::kVerified);
      EXPECT_EQ(sink.verdict(1), Verdict::kVerified);
      EXPECT_EQ(a.target, a.bytes);
      EXPECT_EQ(b.target, b.bytes);
    }
  }
}

TEST_P(GetPayloadTest, OneFlippedByteCondemnsItsChunkAlone) {
  Chunk a(1, 200'000, 65'536);
  Chunk b(2, 200'000, 65'536);
  ASSERT_OK(SelectWhole(true, &a.get));
  ASSERT_OK(SelectWhole(true, &b.get));
  GetPayload sink({a.get, b.get}, GetOrder::kByChunk, nullptr);
  a.bytes[131'072] ^= 1;
  Feed(&sink, a.Stream() + b.Stream(), 10'000, 4);
  EXPECT_EQ(sink.verdict(0), Verdict::kBad);
  EXPECT_EQ(sink.verdict(1), Verdict::kVerified);
}

TEST_P(GetPayloadTest, GoodBytesOfAnotherChunkDoNotPass) {
  Chunk wanted(1, 8192, 0);
  const Chunk other(2, 8192, 0);
  ASSERT_OK(SelectWhole(true, &wanted.get));
  GetChunk get = wanted.get;
  get.root = other.get.root;  // sound in itself: other's table, other's root
  GetPayload sink({get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, AsBytes(other.digests) + other.bytes, 1 << 20, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kBad);
}

TEST_P(GetPayloadTest, RunOfPartsIsVerified) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectParts(3, 2, true, &a.get));
  EXPECT_EQ(a.get.begin, 196'608u);        // 3 x 65,536
  EXPECT_EQ(a.get.end, 300'000u);          // the last part is shorter
  EXPECT_EQ(a.get.table_bytes(), 5u * 8);  // all of them: only they make the root
  EXPECT_EQ(a.get.stream_bytes(), 103'392u + 40);
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 9'999, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kVerified);
  EXPECT_EQ(a.target.substr(0, 300'000 - 196'608), a.bytes.substr(196'608));
}

// The parts asked for may fit their digests: whether these are the chunk's only the root says.
TEST_P(GetPayloadTest, RunOfPartsOfAnotherChunkDoesNotPass) {
  for (const GetOrder order : {GetOrder::kByChunk, GetOrder::kByPart}) {
    Chunk wanted(1, 300'000, 65'536);
    Chunk other(2, 300'000, 65'536);
    ASSERT_OK(SelectParts(1, 2, true, &wanted.get));
    ASSERT_OK(SelectParts(1, 2, true, &other.get));
    for (const uint64_t root : {wanted.get.root, other.get.root}) {
      wanted.get.root = root;
      GetPayload sink({wanted.get}, order, nullptr);
      Feed(&sink, other.Stream(), 10'000, 64);
      EXPECT_EQ(sink.verdict(0), Verdict::kBad);
    }
  }
}

TEST_P(GetPayloadTest, TableThatRotOutsideTheRunIsNoticed) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectParts(1, 2, true, &a.get));
  a.digests[4] ^= 1;
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 1 << 20, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kBad);
}

TEST_P(GetPayloadTest, WhatNeedsNoCheckIsTakenAsItComes) {
  for (const GetOrder order : {GetOrder::kByChunk, GetOrder::kByPart}) {
    Chunk a(1, 300'000, 65'536);
    ASSERT_OK(SelectWhole(true, &a.get));
    a.get.check = false;
    a.digests[2] ^= 1;
    GetPayload sink({a.get}, order, nullptr);
    Feed(&sink, a.Stream(), 7'777, 5);
    EXPECT_EQ(sink.verdict(0), Verdict::kUnverified);
    EXPECT_EQ(a.target, a.bytes);
  }
}

// What a payload tells, checked against the memory at that moment.
struct Told : GetPayload::Listener {
  explicit Told(std::vector<Chunk*> all) : chunks(std::move(all)), parts(chunks.size()) {}
  void OnParts(size_t chunk, uint32_t n) override {
    Chunk& c = *chunks[chunk];
    EXPECT_GT(n, parts[chunk]);
    parts[chunk] = n;
    const uint64_t end = std::min(c.get.end, n * c.get.layout.part_bytes);
    EXPECT_TRUE(c.target.substr(c.get.memory_skip, end - c.get.begin) ==
                c.bytes.substr(c.get.begin, end - c.get.begin))
        << chunk << " " << n;
    EXPECT_EQ(std::count(bad.begin(), bad.end(), chunk), 0);
  }
  void OnBad(size_t chunk) override { bad.push_back(chunk); }
  const std::vector<Chunk*> chunks;
  std::vector<uint32_t> parts;
  std::vector<size_t> bad;
};

TEST_P(GetPayloadTest, ByPartGoesAcrossTheChunks) {
  for (const size_t step : {size_t{1} << 30, size_t{65'536}, size_t{4'096}, size_t{1'237}}) {
    for (const size_t max_pieces : {1000u, 2u, 1u}) {
      Chunk a(1, 300'000, 65'536, 5'000);  // 5 parts
      Chunk b(2, 4096, 0);                 // 1
      Chunk c(3, 200'000, 131'072, 777);   // 2
      for (Chunk* chunk : {&a, &b, &c}) ASSERT_OK(SelectWhole(true, &chunk->get));
      Told told({&a, &b, &c});
      GetPayload sink({a.get, b.get, c.get}, GetOrder::kByPart, &told);
      const std::string stream = a.Table() + b.Table() + c.Table() + a.Part(0) + b.Part(0) +
                                 c.Part(0) + a.Part(1) + c.Part(1) + a.Part(2) + a.Part(3) +
                                 a.Part(4);
      ASSERT_EQ(sink.stream_bytes(), stream.size());
      // Part 0 of all, before any of part 1.
      const size_t front = 8 * (5 + 1 + 2) + 65'536 + 4'096 + 131'072;
      Feed(&sink, stream.substr(0, front), step, max_pieces);
      EXPECT_THAT(told.parts, ::testing::ElementsAre(1, 1, 1));
      EXPECT_EQ(sink.verdict(0), Verdict::kPending);
      EXPECT_EQ(sink.verdict(1), Verdict::kVerified);
      Feed(&sink, stream.substr(front), step, max_pieces);
      EXPECT_THAT(told.parts, ::testing::ElementsAre(5, 1, 2));
      for (const size_t i : {0, 1, 2}) EXPECT_EQ(sink.verdict(i), Verdict::kVerified);
      EXPECT_EQ(a.target, a.bytes);
      EXPECT_EQ(b.target, b.bytes);
      EXPECT_EQ(c.target, c.bytes);
      EXPECT_TRUE(told.bad.empty());
    }
  }
}

TEST_P(GetPayloadTest, ByPartBadChunkIsToldAtOnceAndNoPartOfItAfterwards) {
  Chunk a(1, 300'000, 65'536);
  Chunk b(2, 300'000, 65'536);
  for (Chunk* chunk : {&a, &b}) ASSERT_OK(SelectWhole(true, &chunk->get));
  Told told({&a, &b});
  GetPayload sink({a.get, b.get}, GetOrder::kByPart, &told);
  std::string stream = a.Table() + b.Table();
  for (int p = 0; p < 5; ++p) stream += a.Part(p) + b.Part(p);
  const size_t in_part_2_of_a = 80 + 4 * 65'536 + 9;
  stream[in_part_2_of_a] ^= 1;
  Feed(&sink, stream.substr(0, 80 + 5 * 65'536), 10'000, 64);
  EXPECT_THAT(told.bad, ::testing::ElementsAre(0u));
  EXPECT_THAT(told.parts, ::testing::ElementsAre(2, 2));
  Feed(&sink, stream.substr(80 + 5 * 65'536), 10'000, 64);
  EXPECT_THAT(told.bad, ::testing::ElementsAre(0u));
  EXPECT_THAT(told.parts, ::testing::ElementsAre(2, 5));
  EXPECT_EQ(sink.verdict(0), Verdict::kBad);
  EXPECT_EQ(sink.verdict(1), Verdict::kVerified);
}

TEST_P(GetPayloadTest, ByPartWrongTableIsToldBeforeAnyByte) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectWhole(true, &a.get));
  Told told({&a});
  GetPayload sink({a.get}, GetOrder::kByPart, &told);
  a.digests[4] ^= 1;
  Feed(&sink, a.Table(), 16, 64);
  EXPECT_THAT(told.bad, ::testing::ElementsAre(0u));
}

TEST_P(GetPayloadTest, ByPartRangesAndRunsBehindAFront) {
  Chunk a(1, 300'000, 65'536);  // a range that cuts parts 0 and 2
  Chunk b(2, 300'000, 65'536);  // parts 2 and 3, of which part 2 is in place
  ASSERT_OK(SelectRange(60'000, 100'000, true, &a.get));
  ASSERT_OK(SelectParts(3, 1, true, &b.get));
  b.target.assign(131'072, 'x');
  b.spans = Cut(&b.target, 1'000);
  b.get.memory = MemoryRef(b.spans, 131'072);
  b.get.memory_skip = 65'536;
  Told told({&a, &b});
  GetPayload sink({a.get, b.get}, GetOrder::kByPart, &told);
  const std::string stream = a.Table() + b.Table() + a.Part(0) + a.Part(1) + a.Part(2) + b.Part(3);
  ASSERT_EQ(sink.stream_bytes(), stream.size());
  Feed(&sink, stream, 3'000, 3);
  EXPECT_THAT(told.parts, ::testing::ElementsAre(3, 4));
  EXPECT_EQ(sink.verdict(0), Verdict::kUnverified);
  EXPECT_EQ(sink.verdict(1), Verdict::kVerified);
  EXPECT_EQ(a.target.substr(0, 100'000), a.bytes.substr(60'000, 100'000));
  EXPECT_EQ(b.target, std::string(65'536, 'x') + b.bytes.substr(196'608, 65'536));
}

TEST_P(GetPayloadTest, LargeTablesPassThroughLittleMemory) {
  // 16,384 parts, one of which is asked for: 128 KiB of table in whatever steps.
  Chunk a(1, 67'108'864, 4096);
  ASSERT_OK(SelectParts(16'383, 1, true, &a.get));
  EXPECT_EQ(a.get.table_bytes(), 131'072u);
  for (const size_t step : {size_t{1} << 30, size_t{5'003}}) {
    GetPayload sink({a.get}, GetOrder::kByPart, nullptr);
    Feed(&sink, a.Stream(), step, 64);
    EXPECT_EQ(sink.verdict(0), Verdict::kVerified);
    EXPECT_EQ(a.target.substr(0, 4096), a.bytes.substr(67'104'768));
  }
}

TEST_P(GetPayloadTest, RangeThatCutsPartsIsUnverifiedButItsWholePartsAreChecked) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectRange(65'000, 70'000, true, &a.get));  // all of part 1 (65,536 to 131,072)
  EXPECT_EQ(a.get.first_part, 1u);
  EXPECT_EQ(a.get.part_count, 1u);
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 1'000, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kUnverified);
  EXPECT_EQ(a.target.substr(0, 70'000), a.bytes.substr(65'000, 70'000));

  GetPayload again({a.get}, GetOrder::kByChunk, nullptr);
  a.bytes[100'000] ^= 1;
  Feed(&again, a.Stream(), 1'000, 64);
  EXPECT_EQ(again.verdict(0), Verdict::kBad);
}

TEST_P(GetPayloadTest, RangeWithoutAWholePartNeedsNoTable) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectRange(65'000, 60'000, true, &a.get));
  EXPECT_EQ(a.get.stream_bytes(), 60'000u);
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 1 << 20, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kUnverified);
}

TEST_P(GetPayloadTest, RangeOfWholePartsIsVerified) {
  Chunk a(1, 300'000, 65'536);
  ASSERT_OK(SelectRange(262'144, 300'000 - 262'144, true, &a.get));
  EXPECT_EQ(a.get.part_count, 1u);
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 1 << 20, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kVerified);
}

TEST_P(GetPayloadTest, WithoutDigestsNothingIsVerified) {
  Chunk a(1, 8192, 0);
  ASSERT_OK(SelectWhole(false, &a.get));
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.bytes, 1 << 20, 64);
  EXPECT_EQ(sink.verdict(0), Verdict::kUnverified);
  EXPECT_EQ(a.target, a.bytes);
}

TEST_P(GetPayloadTest, NothingIsExpectedBeyondTheEnd) {
  Chunk a(1, 4096, 0);
  ASSERT_OK(SelectWhole(true, &a.get));
  GetPayload sink({a.get}, GetOrder::kByChunk, nullptr);
  Feed(&sink, a.Stream(), 1 << 20, 64);
  std::vector<iovec> buffers;
  sink.NextBuffers(1, 1, &buffers);
  EXPECT_TRUE(buffers.empty());
  size_t taken = 9;
  EXPECT_OK(sink.TakeFrom("x", 1, &taken));
  EXPECT_EQ(taken, 0u);
  EXPECT_FALSE(sink.Landed(1).ok());
}

TEST_P(GetPayloadTest, SelectionsOutsideTheChunkAreRefused) {
  Chunk a(1, 300'000, 65'536);  // 5 parts
  EXPECT_THAT(SelectParts(5, 0, true, &a.get), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_OK(SelectParts(4, UINT32_MAX, true, &a.get));  // a run may say more than there is
  EXPECT_EQ(a.get.part_count, 1u);
  EXPECT_EQ(a.get.end, 300'000u);
  EXPECT_THAT(SelectRange(300'000, 1, true, &a.get), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SelectRange(1, UINT64_MAX, true, &a.get),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SelectRange(0, 0, true, &a.get), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cistern
