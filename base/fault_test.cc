#include "base/fault.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/clock.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

class FaultTest : public testing::Test {
 protected:
  ~FaultTest() override { DisarmFaults(); }

  // What the point says when it is passed `n` times.
  static std::vector<bool> Pass(int n) {
    std::vector<bool> out;
    for (int i = 0; i < n; ++i) out.push_back(CISTERN_FAULT("test.point"));
    return out;
  }
};

TEST_F(FaultTest, UnarmedPointsDoNothing) { EXPECT_THAT(Pass(2), ElementsAre(false, false)); }

TEST_F(FaultTest, ActsOnceByDefault) {
  ASSERT_OK(ArmFault("test.point:error"));
  EXPECT_THAT(Pass(3), ElementsAre(true, false, false));
  EXPECT_EQ(FaultActions("test.point"), 1u);
}

TEST_F(FaultTest, ActsAsOftenAsCountedAfterSkipping) {
  ASSERT_OK(ArmFault("test.point:error:2:1"));
  EXPECT_THAT(Pass(5), ElementsAre(false, true, true, false, false));
  EXPECT_EQ(FaultActions("test.point"), 2u);
}

TEST_F(FaultTest, CountZeroIsForEver) {
  ASSERT_OK(ArmFault("test.point:error:0"));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(CISTERN_FAULT("test.point"));
}

TEST_F(FaultTest, OtherPointsAreNotTouched) {
  ASSERT_OK(ArmFault("test.other:error:0"));
  EXPECT_THAT(Pass(1), ElementsAre(false));
  EXPECT_EQ(FaultActions("test.point"), 0u);
}

TEST_F(FaultTest, ArmingAgainReplaces) {
  ASSERT_OK(ArmFault("test.point:error:1:5"));
  ASSERT_OK(ArmFault("test.point:error"));
  EXPECT_THAT(Pass(2), ElementsAre(true, false));
}

TEST_F(FaultTest, DisarmingEndsThemAll) {
  ASSERT_OK(ArmFault("test.point:error:0"));
  DisarmFaults();
  EXPECT_THAT(Pass(1), ElementsAre(false));
}

TEST_F(FaultTest, ADelayTakesItsTimeAndIsNoError) {
  ASSERT_OK(ArmFault("test.point:delay=5ms"));
  const MonoTime start = Clock::Real().Mono();
  EXPECT_THAT(Pass(1), ElementsAre(false));
  EXPECT_GE(Clock::Real().Mono() - start, absl::Milliseconds(5));
}

TEST_F(FaultTest, KillEndsTheProcess) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (ArmFault("test.point:kill").ok()) Pass(1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(FaultTest, StopHaltsTheProcessUntilItIsContinued) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (!ArmFault("test.point:stop").ok()) _exit(1);
    _exit(CISTERN_FAULT("test.point") ? 2 : 7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(FaultTest, TheWallClockJumpsAndTheMonotonicOneDoesNot) {
  const absl::Time wall = Clock::Real().Wall();
  const MonoTime mono = Clock::Real().Mono();
  ASSERT_OK(ArmFault("clock.wall:jump=-1h:0:1"));
  EXPECT_GE(Clock::Real().Wall(), wall);  // skipped
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(Clock::Real().Wall(), wall - absl::Minutes(50));
    EXPECT_GE(Clock::Real().Mono(), mono);
  }
  DisarmFaults();
  EXPECT_GE(Clock::Real().Wall(), wall);
}

TEST_F(FaultTest, BadSpecsAreRefusedAndArmNothing) {
  for (const char* spec :
       {"", "test.point", ":error", "test.point:explode", "test.point:error:x",
        "test.point:error:1:x", "test.point:error:-1", "test.point:error:1:1:1",
        "test.point:delay=", "test.point:delay=5", "test.point:delay=-5ms", "test.point:delay=inf",
        "test.point:jump=1h", "clock.wall:jump=", "clock.wall:jump=inf"}) {
    EXPECT_THAT(ArmFault(spec), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected name:")))
        << spec;
  }
  EXPECT_THAT(Pass(1), ElementsAre(false));
}

}  // namespace
}  // namespace cistern
