#include "base/build_info.h"

#include <dlfcn.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

TEST(BuildInfoTest, ModeNamesTheSanitizerOrTheOptimisation) {
  // What the sanitizers' own runtimes bring along.
  if (dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) {
    EXPECT_EQ(BuildMode(), "asan");
  } else if (dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr) {
    EXPECT_EQ(BuildMode(), "tsan");
  } else {
    EXPECT_TRUE(BuildMode() == "opt" || BuildMode() == "dbg") << BuildMode();
  }
}

TEST(BuildInfoTest, CommitIsNeverEmpty) {
  const absl::string_view commit = CommitId();
  EXPECT_TRUE(commit == "unstamped" || absl::StartsWith(commit, "unknown") || commit.size() >= 12)
      << commit;
}

}  // namespace
}  // namespace cistern
