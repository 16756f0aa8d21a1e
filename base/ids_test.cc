#include "base/ids.h"

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;

constexpr char kHex[] = "000102030405060708090a0b0c0d0eff";

TEST(IdTest, HexGoesBothWays) {
  ASSERT_OK_AND_ASSIGN(const KeyId id, KeyId::ParseHex(kHex));
  EXPECT_EQ(id.bytes[0], 0x00);
  EXPECT_EQ(id.bytes[10], 0x0a);
  EXPECT_EQ(id.bytes[15], 0xff);
  EXPECT_EQ(id.ToHex(), kHex);
  ASSERT_OK_AND_ASSIGN(const KeyId upper, KeyId::ParseHex("000102030405060708090A0B0C0D0EFF"));
  EXPECT_EQ(upper, id);
}

TEST(IdTest, BadHexIsRefused) {
  for (const char* hex :
       {"", "00", "000102030405060708090a0b0c0d0ef", "000102030405060708090a0b0c0d0efff",
        "g00102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0ef "}) {
    EXPECT_THAT(KeyId::ParseHex(hex), StatusIs(StatusCode::kInvalidArgument)) << hex;
  }
}

TEST(IdTest, ParseWantsExactlySixteenBytes) {
  EXPECT_THAT(KeyId::Parse(std::string(15, 'x')), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(KeyId::Parse(std::string(17, 'x')), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const KeyId id, KeyId::Parse("0123456789abcdef"));
  EXPECT_EQ(id.view(), "0123456789abcdef");
}

TEST(IdTest, WordsAreLittleEndian) {
  ASSERT_OK_AND_ASSIGN(const KeyId id, KeyId::ParseHex(kHex));
  EXPECT_EQ(id.word(0), 0x0706050403020100u);
  EXPECT_EQ(id.word(1), 0xff0e0d0c0b0a0908u);
}

TEST(IdTest, OnlyAllZerosIsZero) {
  KeyId id;
  EXPECT_TRUE(id.IsZero());
  id.bytes[15] = 1;
  EXPECT_FALSE(id.IsZero());
}

TEST(IdTest, VirtualBucketIsTheFirstTwelveBits) {
  ASSERT_OK_AND_ASSIGN(const KeyId id, KeyId::ParseHex("abcdef00000000000000000000000000"));
  EXPECT_EQ(VirtualBucket(id), 0xabc);
  ASSERT_OK_AND_ASSIGN(const KeyId last, KeyId::ParseHex("ffffffffffffffffffffffffffffffff"));
  EXPECT_EQ(VirtualBucket(last), kVirtualBuckets - 1);
}

TEST(ChunkNameTest, ShardsOfOneKeyAreDifferentChunks) {
  ASSERT_OK_AND_ASSIGN(const KeyId id, KeyId::ParseHex(kHex));
  EXPECT_EQ((ChunkName{id, Shard(3)}), (ChunkName{id, Shard(3)}));
  EXPECT_FALSE((ChunkName{id, Shard(3)}) == (ChunkName{id, Shard(4)}));
}

TEST(StrongIntTest, OrdersByValueAndTakesNoOtherKind) {
  EXPECT_LT(Version(3), Version(4));
  static_assert(!std::is_convertible_v<uint64_t, Version>);
  static_assert(!std::is_convertible_v<Version, Epoch>);
  static_assert(!std::is_convertible_v<KeyId, NamespaceId>);
}

TEST(RoundUpTest, LeavesMultiplesAlone) {
  EXPECT_EQ(RoundUp(0, 4096), 0u);
  EXPECT_EQ(RoundUp(1, 4096), 4096u);
  EXPECT_EQ(RoundUp(4096, 4096), 4096u);
  EXPECT_EQ(RoundUp(4097, 4096), 8192u);
}

}  // namespace
}  // namespace cistern
