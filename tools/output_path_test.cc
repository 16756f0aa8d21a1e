#include "tools/output_path.h"

#include <unistd.h>

#include "base/test_util.h"

namespace cistern {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TEST(OutputPathTest, NothingIsLeftBehindAndNothingIsChanged) {
  const TempDir dir;
  EXPECT_OK(CheckOutputPath(dir / "new.json"));
  EXPECT_NE(access((dir / "new.json").c_str(), F_OK), 0);
  WriteFile(dir / "old.json", "old");
  EXPECT_OK(CheckOutputPath(dir / "old.json"));
  EXPECT_EQ(ReadFile(dir / "old.json"), "old");
  EXPECT_OK(CheckOutputPath("/dev/null"));
  EXPECT_EQ(access("/dev/null", F_OK), 0);
}

TEST(OutputPathTest, SaysWhatIsInTheWay) {
  const TempDir dir;
  EXPECT_THAT(CheckOutputPath(dir / "none/x.json"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("none/x.json: No such file")));
  EXPECT_THAT(CheckOutputPath(dir.path()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Is a directory")));
  // Root may write anywhere but here.
  EXPECT_THAT(CheckOutputPath("/proc/x.json"), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cistern
