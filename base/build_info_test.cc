#include "base/build_info.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(BuildInfoTest, ModeNamesTheSanitizerOrTheOptimisation) {
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(BuildMode(), "asan");
#elif defined(__SANITIZE_THREAD__)
  EXPECT_EQ(BuildMode(), "tsan");
#else
  EXPECT_TRUE(BuildMode() == "opt" || BuildMode() == "dbg") << BuildMode();
#endif
}

TEST(BuildInfoTest, CommitIsNeverEmpty) {
  const absl::string_view commit = CommitId();
  EXPECT_TRUE(commit == "unstamped" || absl::StartsWith(commit, "unknown") || commit.size() >= 12)
      << commit;
}

}  // namespace
}  // namespace cistern
