// Expected digests were made with python-xxhash 4.1.0 (its own build of xxHash) by the formulas of
// docs/formats/keys.md.
#include "base/digest.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;

// Bytes that Python makes in one expression too: bytes(i % 251 for i in range(n)).
std::string Ramp(size_t n) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<char>(i % 251);
  return out;
}

ChunkName Name(std::string_view hex, uint16_t shard) {
  return ChunkName{KeyId::ParseHex(hex).value(), Shard(shard)};
}

constexpr char kBlock0[] = "59a3b8c7ec804d2972c3d73edb9afcef";
constexpr char kBlock1[] = "d631bd43b6b3f932df240f7653408a7b";

// XXH3 takes another path for each of these ranges of lengths.
TEST(DigestTest, IsXxh3OfTheBytes) {
  EXPECT_EQ(DigestOf("", 0), 0x2D06800538D394C2u);
  EXPECT_EQ(DigestOf("a", 1), 0xE6C632B61E964E1Fu);
  const std::pair<size_t, uint64_t> kCases[] = {
      {1, 0xC44BDFF4074EECDB},    {3, 0x5F4299FC161C9CBB},       {8, 0x3A1C2D7C85AF88F8},
      {16, 0x8355E3A6F61770DB},   {17, 0x9EF341A99DE37328},      {128, 0x85C6174C7FF4C46B},
      {129, 0xEC7642B431BA3E5A},  {240, 0x375A384D957FE865},     {241, 0x02E8CD95421C6D02},
      {1024, 0xE5D78BAFA45B2AA5}, {1025, 0xE95C42288F28186E},    {4095, 0xA541030D777F5ABE},
      {4096, 0x7135FFA504F1BC71}, {1 << 20, 0x6E0D7AC36B8C10FF},
  };
  for (const auto& [length, digest] : kCases) {
    EXPECT_EQ(DigestOf(Ramp(length).data(), length), digest) << length;
  }
  EXPECT_EQ(DigestOf(std::string(4096, '\0').data(), 4096), 0x93D76FE148C689BAu);
}

TEST(DigestStreamTest, PiecesGiveTheDigestOfTheWhole) {
  const std::string data = Ramp(1 << 20);
  for (const size_t step : {size_t{1} << 20, size_t{65'536}, size_t{1009}, size_t{64}}) {
    DigestStream stream;
    for (size_t at = 0; at < data.size(); at += step) {
      stream.Update(data.data() + at, std::min(step, data.size() - at));
    }
    EXPECT_EQ(stream.Finish(), 0x6E0D7AC36B8C10FFu) << step;
  }
}

TEST(DigestStreamTest, FinishMayBeAskedInBetweenAndResetStartsAgain) {
  const std::string data = Ramp(4096);
  DigestStream stream;
  EXPECT_EQ(stream.Finish(), 0x2D06800538D394C2u);
  stream.Update(data.data(), 1025);
  EXPECT_EQ(stream.Finish(), 0xE95C42288F28186Eu);
  stream.Update(data.data() + 1025, 4096 - 1025);
  EXPECT_EQ(stream.Finish(), 0x7135FFA504F1BC71u);
  stream.Reset();
  stream.Update("a", 1);
  EXPECT_EQ(stream.Finish(), 0xE6C632B61E964E1Fu);
}

TEST(DigestStreamTest, MovingTakesTheStateAlong) {
  DigestStream stream;
  stream.Update("a", 1);
  DigestStream other = std::move(stream);
  EXPECT_EQ(other.Finish(), 0xE6C632B61E964E1Fu);
}

TEST(PartLayoutTest, TheDefaultIsOnePartUpToOneMebibyte) {
  struct Case {
    uint64_t length, part_bytes;
    uint32_t count;
  };
  for (const Case& c : {Case{4096, 4096, 1}, Case{4097, 8192, 1}, Case{65'536, 65'536, 1},
                        Case{1'048'576, 1'048'576, 1}, Case{1'048'577, 1'048'576, 2},
                        Case{kMaxChunkBytes, 1'048'576, 1024}}) {
    ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(c.length, 0));
    EXPECT_EQ(layout.part_bytes, c.part_bytes) << c.length;
    EXPECT_EQ(layout.count, c.count) << c.length;
  }
}

TEST(PartLayoutTest, OnlyTheLastPartIsShorter) {
  ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(10'000, 4096));
  ASSERT_EQ(layout.count, 3u);
  EXPECT_EQ(layout.PartBegin(2), 8192u);
  EXPECT_EQ(layout.PartBytes(0), 4096u);
  EXPECT_EQ(layout.PartBytes(1), 4096u);
  EXPECT_EQ(layout.PartBytes(2), 1808u);
  ASSERT_OK_AND_ASSIGN(const PartLayout even, PartLayout::Make(8192, 4096));
  EXPECT_EQ(even.count, 2u);
  EXPECT_EQ(even.PartBytes(1), 4096u);
}

TEST(PartLayoutTest, PartsMayBeLongerThanTheChunk) {
  ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(5000, uint64_t{1} << 63));
  EXPECT_EQ(layout.count, 1u);
  EXPECT_EQ(layout.PartBytes(0), 5000u);
}

TEST(PartLayoutTest, BadLengthsAndPartsAreRefused) {
  const std::pair<uint64_t, uint64_t> kCases[] = {
      {0, 0},       {4095, 0},    {kMaxChunkBytes + 1, 0}, {~uint64_t{0}, 0},
      {8192, 2048}, {8192, 4097}, {8192, 12'288},          {kMaxChunkBytes, 8192},
  };
  for (const auto& [length, part_bytes] : kCases) {
    EXPECT_THAT(PartLayout::Make(length, part_bytes), StatusIs(StatusCode::kInvalidArgument))
        << length << " " << part_bytes;
  }
  // 2^30 / 16 KiB = 65,536 parts, the most there may be.
  EXPECT_OK(PartLayout::Make(kMaxChunkBytes, 16'384));
}

TEST(RootDigestTest, IsTheWorkedExample) {
  const PartDigest parts[] = {0x7135FFA504F1BC71, 0x040C7B32B8767F94, 0x428CFCD9E4A2E98A};
  EXPECT_EQ(RootDigest(parts, 10'000, Name(kBlock0, 0)), 0x984C64A5F6AD4407u);
}

TEST(RootDigestTest, CoversLengthKeyAndShard) {
  const PartDigest parts[] = {0x7135FFA504F1BC71, 0x040C7B32B8767F94, 0x428CFCD9E4A2E98A};
  EXPECT_EQ(RootDigest(parts, 9999, Name(kBlock0, 0)), 0x9B49FABE3EA7CF2Au);
  EXPECT_EQ(RootDigest(parts, 10'000, Name(kBlock1, 0)), 0x4C6799D0E8EC9912u);
  EXPECT_EQ(RootDigest(parts, 10'000, Name(kBlock0, 1)), 0x05A45B1389B17C47u);
  EXPECT_EQ(RootDigest(parts, 10'000, Name(kBlock0, 4095)), 0xFE243DCB22ACAC17u);
}

// Up to 64 parts one way, from 65 on another.
TEST(RootDigestTest, IsTheSameFormulaForFewAndManyParts) {
  const std::pair<size_t, uint64_t> kCases[] = {
      {1, 0x10D92EA09C4DCE18},
      {64, 0xFA8B38C7E61CE421},
      {65, 0xADF462767F7BDE83},
      {1000, 0xC91325A82F0BF407},
  };
  for (const auto& [count, root] : kCases) {
    std::vector<PartDigest> parts;
    for (uint64_t i = 0; i < count; ++i) parts.push_back(i * 0x9E3779B97F4A7C15);
    EXPECT_EQ(RootDigest(parts, count * 4096, Name(kBlock0, 7)), root) << count;
  }
}

TEST(ChunkDigesterTest, CollectsTheDigestOfEachPartHoweverTheBytesArrive) {
  const std::string data = Ramp(10'000);
  ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(data.size(), 4096));
  for (const size_t step : {1, 100, 4095, 4096, 4097, 9999, 10'000}) {
    ChunkDigester digester(layout);
    for (size_t at = 0; at < data.size(); at += step) {
      EXPECT_FALSE(digester.complete());
      digester.Update(data.data() + at, std::min(step, data.size() - at));
    }
    EXPECT_TRUE(digester.complete());
    EXPECT_THAT(digester.parts(),
                testing::ElementsAre(0x7135FFA504F1BC71, 0x040C7B32B8767F94, 0x428CFCD9E4A2E98A))
        << step;
  }
}

TEST(ChunkDigesterDeathTest, MoreBytesThanTheChunkHasAreOurBug) {
  ASSERT_OK_AND_ASSIGN(const PartLayout layout, PartLayout::Make(4096, 4096));
  ChunkDigester digester(layout);
  const std::string data = Ramp(4097);
  EXPECT_DEATH(digester.Update(data.data(), data.size()), "check failed");
}

}  // namespace
}  // namespace cistern
