#include "base/columns.h"

#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(ColumnTest, ReadsLittleEndianElements) {
  const std::string bytes("\x01\x02\x03\x04\xff\x00", 6);
  ASSERT_OK_AND_ASSIGN(const auto column,
                       Column<uint16_t>::Parse(bytes, 3, "stores", false, false));
  ASSERT_EQ(column.size(), 3u);
  EXPECT_EQ(column[0], 0x0201);
  EXPECT_EQ(column[1], 0x0403);
  EXPECT_EQ(column[2], 0x00ff);
}

TEST(ColumnTest, BytesNeedNotBeAligned) {
  std::string bytes("x\x01\x00\x00\x00\x00\x00\x00\x80", 9);
  ASSERT_OK_AND_ASSIGN(const auto column, Column<uint64_t>::Parse(std::string_view(bytes).substr(1),
                                                                  1, "lengths", false, false));
  EXPECT_EQ(column[0], 0x8000000000000001u);
}

TEST(ColumnTest, OneElementStandsForAllWhereThatIsAllowed) {
  const std::string bytes("\x07\x00\x00\x00", 4);
  ASSERT_OK_AND_ASSIGN(const auto column,
                       Column<uint32_t>::Parse(bytes, 5, "lengths", false, true));
  EXPECT_EQ(column.size(), 5u);
  EXPECT_EQ(column[0], 7u);
  EXPECT_EQ(column[4], 7u);
  EXPECT_THAT(Column<uint32_t>::Parse(bytes, 5, "lengths", false, false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("lengths has 4 bytes for 5")));
}

TEST(ColumnTest, AnAbsentColumnReadsAsTheFallbackWhereThatIsAllowed) {
  ASSERT_OK_AND_ASSIGN(const auto column,
                       Column<uint16_t>::Parse("", 2, "tiers", true, false, uint16_t{9}));
  EXPECT_EQ(column[0], 9);
  EXPECT_EQ(column[1], 9);
  EXPECT_THAT(Column<uint16_t>::Parse("", 2, "tiers", false, false),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(ColumnTest, OtherSizesAreRefused) {
  for (const size_t size : {1, 2, 3, 5, 7, 9, 16}) {
    EXPECT_THAT(Column<uint32_t>::Parse(std::string(size, 'x'), 2, "lengths", true, true),
                StatusIs(StatusCode::kInvalidArgument))
        << size;
  }
}

TEST(KeyColumnTest, CutsTheBytesIntoIds) {
  const std::string bytes = "0123456789abcdefABCDEFGHIJKLMNOP";
  ASSERT_OK_AND_ASSIGN(const KeyColumn ids, KeyColumn::Parse(bytes));
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0].view(), "0123456789abcdef");
  EXPECT_EQ(ids[1].view(), "ABCDEFGHIJKLMNOP");
}

TEST(KeyColumnTest, HalfAnIdIsRefused) {
  EXPECT_THAT(KeyColumn::Parse("0123456789abcdefA"), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const KeyColumn none, KeyColumn::Parse(""));
  EXPECT_EQ(none.size(), 0u);
}

TEST(ColumnWriterTest, ElementsNotSetAreZero) {
  std::string bytes = "what was there before";
  ColumnWriter<uint32_t> writer(&bytes, 2);
  writer.Set(1, 0x01020304);
  EXPECT_EQ(bytes, std::string("\0\0\0\0\x04\x03\x02\x01", 8));
}

TEST(BitmapTest, BitIIsInByteIOverEight) {
  std::string bits(BitmapBytes(10), '\0');
  ASSERT_EQ(bits.size(), 2u);
  BitmapSet(&bits, 0);
  BitmapSet(&bits, 9);
  EXPECT_EQ(bits, "\x01\x02");
  EXPECT_TRUE(BitmapGet(bits, 0));
  EXPECT_FALSE(BitmapGet(bits, 1));
  EXPECT_TRUE(BitmapGet(bits, 9));
}

TEST(BitmapTest, BitsBeyondTheBytesAreZero) {
  EXPECT_FALSE(BitmapGet("", 0));
  EXPECT_FALSE(BitmapGet("\xff", 8));
}

TEST(BitmapTest, HasOneByteForEightBits) {
  EXPECT_EQ(BitmapBytes(0), 0u);
  EXPECT_EQ(BitmapBytes(1), 1u);
  EXPECT_EQ(BitmapBytes(8), 1u);
  EXPECT_EQ(BitmapBytes(9), 2u);
}

TEST(BitmapTest, WrongSizesAndSpareBitsAreRefused) {
  EXPECT_OK(CheckBitmap("\x0f", 4, "present", false));
  EXPECT_OK(CheckBitmap("\xff", 8, "present", false));
  EXPECT_OK(CheckBitmap("", 8, "present", true));
  EXPECT_OK(CheckBitmap("", 0, "present", false));
  EXPECT_THAT(CheckBitmap("", 8, "present", false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("present has 0 bytes for 8 bits")));
  EXPECT_THAT(CheckBitmap("\x01\x02", 8, "present", true), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckBitmap("\x1f", 4, "present", false),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("beyond 4")));
}

}  // namespace
}  // namespace cistern
