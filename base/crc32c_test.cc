#include "base/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace cistern {
namespace {

uint32_t Crc(const std::string& s) { return Crc32c(s.data(), s.size()); }

// RFC 3720, appendix B.4; the bytes there are the CRC in network order of its reflected form.
TEST(Crc32cTest, GivesTheValuesOfRfc3720) {
  EXPECT_EQ(Crc(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc(std::string(32, '\xff')), 0x62A8AB43u);
  std::string up(32, '\0');
  std::string down(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[i] = static_cast<char>(i);
    down[i] = static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc(up), 0x46DD794Eu);
  EXPECT_EQ(Crc(down), 0x113FDB5Cu);
  // An iSCSI SCSI Read (10) command.
  std::string command(48, '\0');
  command[0] = 0x01;
  command[1] = '\xc0';
  command[16] = 0x14;
  command[22] = 0x04;
  command[27] = 0x14;
  command[31] = 0x18;
  command[32] = 0x28;
  command[40] = 0x02;
  EXPECT_EQ(Crc(command), 0xD9963A56u);
}

TEST(Crc32cTest, GivesTheCheckValueOfTheCatalogue) {
  // CRC-32/ISCSI in the catalogue of parametrised CRC algorithms.
  EXPECT_EQ(Crc("123456789"), 0xE3069283u);
}

TEST(Crc32cTest, NothingIsZero) { EXPECT_EQ(Crc32c(nullptr, 0), 0u); }

}  // namespace
}  // namespace cistern
