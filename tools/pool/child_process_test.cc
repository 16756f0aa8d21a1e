#include "tools/pool/child_process.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::pool {
namespace {

using ::testing::HasSubstr;

class ChildProcessTest : public testing::Test {
 protected:
  ChildProcessTest() : log_(testing::TempDir() + "/child" + std::to_string(getpid()) + ".log") {}
  ~ChildProcessTest() override { unlink(log_.c_str()); }

  std::unique_ptr<ChildProcess> Shell(const std::string& script) {
    auto child = ChildProcess::Start(
        {.name = "it", .argv = {"/bin/sh", "-c", script}, .log_path = log_}, Clock::Real());
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }

  const std::string log_;
};

TEST_F(ChildProcessTest, TellsTheExitCodeAndKeepsWhatWasPrinted) {
  auto child = Shell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(child->WaitFor(absl::Seconds(20)));
  EXPECT_EQ(child->exit_code(), 3);
  EXPECT_EQ(child->Fate(), "ended with exit code 3");
  EXPECT_EQ(child->LogTail(), "out\nerr\n");
  EXPECT_EQ(child->LogTail(1), "err\n");
}

TEST_F(ChildProcessTest, HasAnEmptyInputAndAGroupOfItsOwn) {
  auto child = Shell("cat; ps -o pgid= -p $$ 2> /dev/null || cut -d' ' -f5 /proc/$$/stat");
  const pid_t pid = child->pid();
  ASSERT_TRUE(child->WaitFor(absl::Seconds(20)));
  EXPECT_EQ(std::stoi(child->LogTail()), pid);
}

TEST_F(ChildProcessTest, StopsWithSigtermAndKillsOnlyTheDeaf) {
  auto polite = Shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
  while (polite->LogTail().empty()) Clock::Real().SleepFor(absl::Milliseconds(2));
  EXPECT_TRUE(polite->Stop(absl::Seconds(20)));
  EXPECT_EQ(polite->exit_code(), 0);

  auto deaf = Shell("trap '' TERM; echo deaf; while :; do sleep 0.01; done");
  while (deaf->LogTail(1) != "deaf\n") Clock::Real().SleepFor(absl::Milliseconds(2));
  EXPECT_FALSE(deaf->Stop(absl::Milliseconds(20)));
  EXPECT_EQ(deaf->Fate(), "was ended by signal 9");
}

TEST_F(ChildProcessTest, DestroyingItEndsIt) {
  auto child = Shell("sleep 1000");
  const pid_t pid = child->pid();
  child.reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(ChildProcessTest, AMissingProgramIsNamed) {
  const absl::Status status =
      ChildProcess::Start({.name = "x", .argv = {"/nonexistent/x"}, .log_path = log_},
                          Clock::Real())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/x"));
}

TEST_F(ChildProcessTest, TailOfALongLineIsBounded) {
  std::ofstream(log_) << std::string(200'000, 'x') << "\n";
  EXPECT_EQ(TailOfFile(log_, 5).size(), size_t{64} << 10);
  EXPECT_EQ(TailOfFile("/nonexistent", 5), "");
}

}  // namespace
}  // namespace cistern::pool
