#include "base/durable_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/test_util.h"

namespace cistern {
namespace {

using testing::HasSubstr;

TEST(DurableFileTest, ReplacesTheWholeFile) {
  TempDir dir;
  ASSERT_OK(WriteFileDurably(dir.path(), "file", std::string(100'000, 'a')));
  ASSERT_OK(WriteFileDurably(dir.path(), "file", "short"));
  EXPECT_EQ(ReadFile(dir / "file"), "short");
  struct stat st;
  ASSERT_EQ(stat((dir / "file").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_NE(access((dir / "file.new").c_str(), F_OK), 0);
}

TEST(DurableFileTest, FailureLeavesWhatWasThere) {
  TempDir dir;
  ASSERT_OK(WriteFileDurably(dir.path(), "file", "old"));
  ASSERT_OK(ArmFault("base.durable_file.write:error"));
  EXPECT_THAT(WriteFileDurably(dir.path(), "file", "new"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(dir / "file")));
  DisarmFaults();
  EXPECT_EQ(ReadFile(dir / "file"), "old");
  // The target cannot be replaced: a folder is in its place.
  ASSERT_EQ(mkdir((dir / "folder").c_str(), 0700), 0);
  EXPECT_FALSE(WriteFileDurably(dir.path(), "folder", "x").ok());
  EXPECT_NE(access((dir / "folder.new").c_str(), F_OK), 0);
}

TEST(DurableFileTest, MissingFolderIsNamed) {
  EXPECT_THAT(WriteFileDurably("/nonexistent/folder", "file", "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/folder")));
}

}  // namespace
}  // namespace cistern
