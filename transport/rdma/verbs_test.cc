#include "transport/rdma/verbs.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::transport::rdma {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(VerbsTest, AMissingLibraryIsNamedWithThePackagesThatBringIt) {
  const absl::Status status = internal::TryToLoad("libno-such-verbs.so.7", "librdmacm.so.1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no RDMA"), HasSubstr("libno-such-verbs.so.7"),
                    HasSubstr("libibverbs1"), HasSubstr("librdmacm1")));
}

TEST(VerbsTest, ALibraryWithoutTheFunctionsIsRefusedByTheFirstThatIsMissing) {
  const absl::Status status = internal::TryToLoad("libc.so.6", "librdmacm.so.1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libc.so.6"), HasSubstr("ibv_get_device_list (IBVERBS_1.1)")));
}

TEST(VerbsTest, TheConnectionManagersLibraryIsNeededToo) {
  const absl::StatusOr<const Verbs*> loaded = LoadVerbs();
  if (!loaded.ok()) GTEST_SKIP() << "skipped: " << loaded.status().message();
  const absl::Status status = internal::TryToLoad("libibverbs.so.1", "libno-such-cm.so.7");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("libno-such-cm.so.7"));
}

TEST(VerbsTest, EveryThreadGetsTheSameTable) {
  std::vector<absl::StatusOr<const Verbs*>> seen(8, absl::UnknownError(""));
  std::vector<std::thread> threads;
  for (auto& one : seen) threads.emplace_back([&one] { one = LoadVerbs(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : seen) {
    ASSERT_EQ(one.status(), LoadVerbs().status());
    if (one.ok()) {
      EXPECT_EQ(*one, *LoadVerbs());
    }
  }
}

// Where the libraries are, every function that the table promises is there.
TEST(VerbsTest, NoPointerOfTheTableIsNull) {
  const absl::StatusOr<const Verbs*> loaded = LoadVerbs();
  if (!loaded.ok()) GTEST_SKIP() << "skipped: " << loaded.status().message();
#define CISTERN_CHECK_SET(name, version) EXPECT_NE((*loaded)->name, nullptr) << #name;
  CISTERN_IBVERBS_FUNCTIONS(CISTERN_CHECK_SET)
#undef CISTERN_CHECK_SET
#define CISTERN_CHECK_SET(name, version) EXPECT_NE((*loaded)->cm.name, nullptr) << #name;
  CISTERN_RDMACM_FUNCTIONS(CISTERN_CHECK_SET)
#undef CISTERN_CHECK_SET
  EXPECT_NE((*loaded)->query_port_compat, nullptr);
  EXPECT_NE((*loaded)->query_gid_table, nullptr);
  // The right functions, not just any: these two tell by their answers.
  EXPECT_STREQ((*loaded)->wc_status_str(IBV_WC_REM_ACCESS_ERR), "remote access error");
  EXPECT_STREQ((*loaded)->cm.event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
}

}  // namespace
}  // namespace cistern::transport::rdma
