#include "transport/frame.h"

#include <algorithm>
#include <array>

#include "gtest/gtest.h"

namespace cistern::transport {
namespace {

// Made with Python: struct.pack("<IBBHQIIQ", 0x4D545343, 1, 21, 1, 0x0102030405060708, 5,
// crc32c(b"hello"), 0x123456789a).
constexpr std::array<uint8_t, kFrameHeaderBytes> kFixture = {
    0x43, 0x53, 0x54, 0x4d, 0x01, 0x15, 0x01, 0x00, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
    0x05, 0x00, 0x00, 0x00, 0x4c, 0xbb, 0x71, 0x9a, 0x9a, 0x78, 0x56, 0x34, 0x12, 0x00, 0x00, 0x00};

FrameHeader Fixture() {
  FrameHeader header;
  header.type = FrameType::kGet;
  header.flags = kFlagFinal;
  header.request_id = 0x0102030405060708;
  header.meta_bytes = 5;
  header.meta_crc = 0x9a71bb4c;
  header.payload_bytes = 0x123456789a;
  return header;
}

TEST(FrameHeaderTest, EncodesTheFixture) {
  std::array<uint8_t, kFrameHeaderBytes> out{};
  EncodeFrameHeader(Fixture(), out.data());
  EXPECT_EQ(out, kFixture);
}

TEST(FrameHeaderTest, DecodesTheFixture) {
  const auto header = DecodeFrameHeader(kFixture.data(), 5, 0x123456789a);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->type, FrameType::kGet);
  EXPECT_EQ(header->flags, kFlagFinal);
  EXPECT_EQ(header->request_id, 0x0102030405060708u);
  EXPECT_EQ(header->meta_bytes, 5u);
  EXPECT_EQ(header->meta_crc, 0x9a71bb4cu);
  EXPECT_EQ(header->payload_bytes, 0x123456789au);
}

TEST(FrameHeaderTest, RefusesWhatIsBeyondTheLimits) {
  EXPECT_FALSE(DecodeFrameHeader(kFixture.data(), 4, 0x123456789a).ok());
  EXPECT_FALSE(DecodeFrameHeader(kFixture.data(), 5, 0x1234567899).ok());
}

TEST(FrameHeaderTest, RefusesAnotherMagicOrMajor) {
  for (const size_t i : {0, 1, 2, 3, 4}) {
    auto bytes = kFixture;
    bytes[i] ^= 0x02;
    const auto header = DecodeFrameHeader(bytes.data(), 5, 0x123456789a);
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(FrameHeaderTest, PassesUnknownTypesAndFlags) {
  auto bytes = kFixture;
  bytes[5] = 0xee;
  bytes[7] = 0x80;
  const auto header = DecodeFrameHeader(bytes.data(), 5, 0x123456789a);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(static_cast<int>(header->type), 0xee);
  EXPECT_EQ(header->flags, 0x8001);
}

}  // namespace
}  // namespace cistern::transport
