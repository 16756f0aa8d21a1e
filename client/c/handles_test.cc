#include "client/c/handles.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "base/test_util.h"

namespace cistern::c {
namespace {

struct ANamespace {
  static constexpr Kind kKind = Kind::kNamespace;
  int number = 0;
};
struct AnOp {
  static constexpr Kind kKind = Kind::kOp;
};

std::shared_ptr<ANamespace> Numbered(int number) {
  auto object = std::make_shared<ANamespace>();
  object->number = number;
  return object;
}

TEST(HandlesTest, FindsWhatWasAddedAndNothingElse) {
  const uint64_t one = Add(Numbered(1));
  const uint64_t two = Add(Numbered(2));
  EXPECT_NE(one, two);
  EXPECT_EQ((*Find<ANamespace>(one))->number, 1);
  EXPECT_EQ((*Find<ANamespace>(two))->number, 2);
  EXPECT_THAT(Find<ANamespace>(two + 1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Take<ANamespace>(one));
  EXPECT_OK(Take<ANamespace>(two));
}

TEST(HandlesTest, AFreedHandleStaysDeadAndIsNeverUsedAgain) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t handle = Add(Numbered(i));
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_EQ((*Take<ANamespace>(handle))->number, i);
    EXPECT_THAT(Find<ANamespace>(handle), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(Take<ANamespace>(handle), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(HandlesTest, AnotherKindIsNamed) {
  const uint64_t handle = Add(Numbered(1));
  const auto op = Find<AnOp>(handle);
  EXPECT_EQ(op.status().message(), "not a op but a namespace");
  EXPECT_THAT(Take<AnOp>(handle), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Find<ANamespace>(handle));  // the mistake did not free it
  EXPECT_OK(Take<ANamespace>(handle));
}

TEST(HandlesTest, ZeroIsNone) {
  EXPECT_THAT(Find<AnOp>(0), StatusIs(absl::StatusCode::kInvalidArgument));
  const auto taken = Take<AnOp>(0);
  EXPECT_OK(taken);
  EXPECT_EQ(*taken, nullptr);
}

TEST(HandlesTest, AnyNumberIsSurvived) {
  for (int shift = 0; shift < 64; ++shift) {
    EXPECT_FALSE(Find<AnOp>(uint64_t{1} << shift).ok());
    EXPECT_FALSE(Find<AnOp>(~uint64_t{0} >> shift).ok());
  }
}

TEST(HandlesTest, AnObjectInUseOutlivesItsHandle) {
  const uint64_t handle = Add(Numbered(7));
  const std::shared_ptr<ANamespace> held = *Find<ANamespace>(handle);
  EXPECT_OK(Take<ANamespace>(handle));
  EXPECT_EQ(held->number, 7);
}

TEST(HandlesTest, AForksChildFindsTheTableWholeWhateverThreadsDo) {
  const uint64_t handle = Add(Numbered(7));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) Take<ANamespace>(Add(Numbered(1))).status().IgnoreError();
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // a lock held for ever ends the child, and the test sees it
      const auto found = Find<ANamespace>(handle);
      _exit(found.ok() && (*found)->number == 7 && Add(Numbered(1)) != 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(Take<ANamespace>(handle));
}

}  // namespace
}  // namespace cistern::c
