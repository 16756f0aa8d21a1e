#include "base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern {
namespace {

using testing::ElementsAre;

class LogTest : public testing::Test {
 protected:
  LogTest() { SetLogLevel(LogLevel::kInfo); }
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }

  void Capture() {
    SetLogSink([this](LogLevel, std::string_view, int, std::string_view text) {
      lines_.emplace_back(text);
    });
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, WithoutASinkNothingIsWrittenOrEvenFormatted) {
  int formatted = 0;
  const auto count = [&] { return ++formatted; };
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  CISTERN_LOG(Error, "an error ", count());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(formatted, 0);
  EXPECT_FALSE(LogEnabled(LogLevel::kError));
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  Capture();
  SetLogLevel(LogLevel::kWarning);
  CISTERN_LOG(Info, "no");
  CISTERN_LOG(Warning, "yes ", 1);
  CISTERN_LOG(Error, "yes ", 2);
  EXPECT_THAT(lines_, ElementsAre("yes 1", "yes 2"));
}

TEST_F(LogTest, AReplacedSinkGetsNothingMore) {
  Capture();
  CISTERN_LOG(Info, "one");
  SetLogSink(nullptr);
  CISTERN_LOG(Info, "two");
  EXPECT_THAT(lines_, ElementsAre("one"));
}

TEST_F(LogTest, TheSinkHearsLevelFileAndLine) {
  LogLevel level = LogLevel::kDebug;
  std::string file;
  int line = 0;
  SetLogSink([&](LogLevel l, std::string_view f, int n, std::string_view) {
    level = l;
    file = f;
    line = n;
  });
  CISTERN_LOG(Warning, "here");
  const int here = __LINE__ - 1;
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_THAT(file, testing::EndsWith("base/log_test.cc"));
  EXPECT_EQ(line, here);
}

TEST_F(LogTest, LinesThatASinkLogsAreDropped) {
  SetLogSink([this](LogLevel, std::string_view, int, std::string_view text) {
    lines_.emplace_back(text);
    CISTERN_LOG(Error, "from the sink");
  });
  CISTERN_LOG(Info, "outer");
  EXPECT_THAT(lines_, ElementsAre("outer"));
}

TEST_F(LogTest, TheSinkIsCalledOneThreadAtATime) {
  // The sink writes without a lock of its own: ThreadSanitizer and the count would tell.
  Capture();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) CISTERN_LOG(Info, "line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400u);
}

// Workers are forked whatever the library's threads are doing.
TEST_F(LogTest, ForksChildLogsThoughAnotherThreadWasInTheSink) {
  std::promise<void> inside;
  std::promise<void> go_on;
  SetLogSink([&](LogLevel, std::string_view, int, std::string_view) {
    inside.set_value();
    go_on.get_future().wait();
  });
  std::thread logger([] { CISTERN_LOG(Info, "in the parent"); });
  inside.get_future().wait();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // instead of hanging
    int heard = 0;
    CISTERN_LOG(Info, "to nobody");
    SetLogSink([&heard](LogLevel, std::string_view, int, std::string_view) { ++heard; });
    CISTERN_LOG(Info, "to its own sink");
    _exit(heard == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  go_on.set_value();
  logger.join();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LogTest, StderrLinesHaveTimeSeverityAndPlace) {
  EXPECT_EQ(FormatLogLine(absl::FromUnixMillis(1'767'323'045'678), LogLevel::kWarning,
                          "store/store.cc", 12, "text"),
            "2026-01-02T03:04:05.678Z W store.cc:12 text\n");
  EXPECT_EQ(FormatLogLine(absl::UnixEpoch(), LogLevel::kError, "a.cc", 1, ""),
            "1970-01-01T00:00:00.000Z E a.cc:1 \n");
}

TEST_F(LogTest, TheStderrSinkWritesOneLine) {
  SetLogSink(StderrSink());
  testing::internal::CaptureStderr();
  CISTERN_LOG(Error, "disk is gone");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("20[^ ]*Z E log_test.cc:[0-9]+ disk is gone\n"));
}

TEST_F(LogTest, LevelsAreParsedByName) {
  LogLevel level = LogLevel::kDebug;
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("WARNING", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
}

TEST_F(LogTest, RepeatedLinesFromOnePlaceAreHeldBack) {
  Capture();
  for (int i = 0; i < 3; ++i) CISTERN_LOG_EVERY(Warning, absl::Hours(1), "line ", i);
  EXPECT_THAT(lines_, ElementsAre("line 0"));
}

TEST_F(LogTest, LinesThatNobodyWantsDoNotUseUpTheLimit) {
  const auto log = [](int i) { CISTERN_LOG_EVERY(Warning, absl::Hours(1), "line ", i); };
  log(0);
  Capture();
  log(1);
  EXPECT_THAT(lines_, ElementsAre("line 1"));
}

TEST(LogRateLimitTest, AllowsOneLineAPeriodAndCountsTheRest) {
  LogRateLimit limit;
  const absl::Duration period = absl::Seconds(10);
  uint64_t held = 99;
  EXPECT_TRUE(limit.AllowAt(absl::Seconds(100), period, &held));
  EXPECT_EQ(held, 0u);
  EXPECT_FALSE(limit.AllowAt(absl::Seconds(101), period, &held));
  EXPECT_FALSE(limit.AllowAt(absl::Seconds(110) - absl::Nanoseconds(1), period, &held));
  EXPECT_TRUE(limit.AllowAt(absl::Seconds(110), period, &held));
  EXPECT_EQ(held, 2u);
  EXPECT_TRUE(limit.AllowAt(absl::Seconds(500), period, &held));
  EXPECT_EQ(held, 0u);
}

}  // namespace
}  // namespace cistern
