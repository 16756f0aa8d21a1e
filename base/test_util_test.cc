#include "base/test_util.h"

#include <sys/stat.h>

#include <cstring>

#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

TEST(TempDirTest, GoesAwayWithAllThatIsInIt) {
  std::string path;
  {
    const TempDir dir;
    path = dir.path();
    ASSERT_EQ(mkdir((dir / "sub").c_str(), 0700), 0);
    WriteFile(dir / "sub/file", "text");
    EXPECT_EQ(ReadFile(dir / "sub/file"), "text");
  }
  struct stat info;
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST(TempDirTest, LeavesRoomForASocketName) {
  EXPECT_LE((TempDir() / "a-socket-with-a-long-name.sock").size(), 107u);
}

TEST(PatternBytesTest, SeedAndPositionAreAllThatCounts) {
  // SplitMix64 in Python, from the state (1 + 1) * 0xD1342543DE82EF95 mod 2^64.
  const unsigned char kExpected[] = {0x3d, 0x59, 0x5d, 0x03, 0xc1, 0x7f,
                                     0xae, 0x61, 0xc1, 0x55, 0x7e};
  EXPECT_EQ(PatternBytes(1, 11),
            std::string(reinterpret_cast<const char*>(kExpected), sizeof(kExpected)));
  EXPECT_EQ(PatternBytes(1, 4096), PatternBytes(1, 8192).substr(0, 4096));
  EXPECT_NE(PatternBytes(1, 64), PatternBytes(2, 64));
  EXPECT_EQ(PatternBytes(1, 0), "");
}

TEST(StatusMatchersTest, LookAtCodeAndMessage) {
  const absl::Status status = absl::NotFoundError("no lease 7");
  EXPECT_THAT(status, StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(status, StatusIs(StatusCode::kNotFound, HasSubstr("lease")));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kNotFound, HasSubstr("pin"))));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kAborted, HasSubstr("lease"))));
  EXPECT_THAT(status, Not(IsOk()));
  EXPECT_THAT(absl::StatusOr<int>(status), StatusIs(StatusCode::kNotFound));
  EXPECT_OK(absl::StatusOr<int>(1));
}

}  // namespace
}  // namespace cistern
