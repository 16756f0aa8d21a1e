// cisternctl top in a real terminal and out of one, with a real pool under it.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/daemons.h"
#include "tools/ctl/app.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEnterScreen[] = "\x1b[?1049h";
constexpr char kLeaveScreen[] = "\x1b[?1049l";
constexpr char kShowCursor[] = "\x1b[?25h";

// cisternctl in a pseudo-terminal of 200 x 50.
class InTerminal {
 public:
  explicit InTerminal(std::vector<std::string> words) {
    words.insert(words.begin(), "tools/ctl/cisternctl");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    // The slave end stays open here, so that its mode can be looked at after the program has ended.
    winsize size{};
    size.ws_row = 50;
    size.ws_col = 200;
    EXPECT_EQ(openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
    EXPECT_EQ(tcgetattr(slave_, &before_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(master_);
      login_tty(slave_);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~InTerminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(master_);
    close(slave_);
  }

  // Reads until `text` has been shown after what was awaited before; false after half a minute.
  bool Await(const std::string& text) {
    const MonoTime until = Clock::Real().Mono() + absl::Seconds(30);
    while (true) {
      const size_t at = shown_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (Clock::Real().Mono() > until || !ReadSome()) return false;
    }
  }
  void Type(const std::string& keys) {
    EXPECT_EQ(write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit code; -1: it was ended by a signal, or has not ended in half a minute.
  int Wait() {
    const MonoTime until = Clock::Real().Mono() + absl::Seconds(30);
    while (Clock::Real().Mono() < until) {
      ReadSome();
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = -1;
      while (ReadSome()) {
      }
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return -1;
  }
  // Echo, line mode and signals as before it ran.
  bool TerminalIsAsBefore() {
    termios now{};
    EXPECT_EQ(tcgetattr(slave_, &now), 0);
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag &&
           now.c_oflag == before_.c_oflag && now.c_cflag == before_.c_cflag;
  }
  void Resize(uint16_t rows, uint16_t columns) {
    winsize size{};
    size.ws_row = rows;
    size.ws_col = columns;
    EXPECT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
  }
  const std::string& shown() const { return shown_; }

 private:
  // False: nothing came in a tenth of a second.
  bool ReadSome() {
    pollfd fd = {master_, POLLIN, 0};
    if (poll(&fd, 1, 100) <= 0) return pid_ > 0;
    char buffer[8192];
    const ssize_t n = read(master_, buffer, sizeof(buffer));
    if (n <= 0) return false;
    shown_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  int master_ = -1;
  int slave_ = -1;
  pid_t pid_ = -1;
  termios before_{};
  std::string shown_;
  size_t seen_ = 0;
};

class TopTest : public testing::Test {
 protected:
  void SetUp() override {
    master_ = daemons_.StartMaster();
    store_ = daemons_.StartStore();
    // In session, so that top sees a store that serves.
    for (int i = 0; i < 3000; ++i) {
      if (Plain({"stores"}).find("serving") != std::string::npos) return;
      Clock::Real().SleepFor(absl::Milliseconds(10));
    }
    FAIL() << "the store does not serve";
  }
  std::vector<std::string> With(const std::vector<std::string>& words) {
    std::vector<std::string> all = {"--endpoints", daemons_.run_dir("master") + "/endpoints.json"};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }
  // In this process, with nothing that is a terminal.
  std::string Plain(const std::vector<std::string>& words, int want_exit = 0) {
    std::vector<std::string> all = With(words);
    std::vector<const char*> argv = {"cisternctl"};
    for (const std::string& word : all) argv.push_back(word.c_str());
    std::ostringstream out;
    err_.str("");
    EXPECT_EQ(ctl::RunApp(static_cast<int>(argv.size()), argv.data(), out, err_), want_exit)
        << err_.str();
    return out.str();
  }
  // A put and a get of each of `count` chunks of 8 KiB, and as many misses.
  void MakeTraffic(const std::string& prefix, int count) {
    ClientOptions options;
    options.master_address = daemons_.master().data;
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    const std::string file = testing::TempDir() + "/chunk";
    ASSERT_TRUE(WriteFile(file, std::string(8192, 'x')));
    for (int i = 0; i < count; ++i) {
      const std::string key = prefix + std::to_string(i);
      Plain({"--data", daemons_.master().data, "put", key, file, "-n", "model"});
      Plain({"--data", daemons_.master().data, "get", key, "-", "-n", "model"});
    }
  }
  static bool WriteFile(const std::string& path, const std::string& text) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return good;
  }

  Daemons daemons_;
  std::unique_ptr<pool::ChildProcess> master_;
  std::unique_ptr<pool::ChildProcess> store_;
  std::ostringstream err_;
};

TEST_F(TopTest, PlainPagesWithoutATerminal) {
  const std::string page = Plain({"top", "--once", "-i", "200ms"});
  EXPECT_THAT(page, HasSubstr("epoch 1, up "));
  EXPECT_THAT(page, HasSubstr("1 store, 0 chunks"));
  EXPECT_THAT(page, HasSubstr("store-0"));
  EXPECT_THAT(page, HasSubstr("serving"));
  EXPECT_THAT(page, HasSubstr("evictions/s: -"));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
}

TEST_F(TopTest, JsonIsOneObjectARefreshWithTrueRates) {
  MakeTraffic("before", 2);  // the namespace, so that the rates start at zero
  std::thread traffic([&] { MakeTraffic("during", 5); });
  // Until a refresh has seen some of it; each covers what came since the one before.
  double puts = 0;
  double lookups = 0;
  for (int i = 0; i < 60 && (puts == 0 || lookups == 0); ++i) {
    std::ostringstream out;
    std::vector<std::string> all = With({"-o", "json", "top", "-n", "2", "-i", "600ms"});
    std::vector<const char*> argv = {"cisternctl"};
    for (const std::string& word : all) argv.push_back(word.c_str());
    std::ostringstream err;
    ASSERT_EQ(ctl::RunApp(static_cast<int>(argv.size()), argv.data(), out, err), 0) << err.str();
    std::istringstream lines(out.str());
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const auto json = nlohmann::json::parse(line);
      ASSERT_EQ(json["stores"].size(), 1u);
      const auto& rate = json["stores"][0]["puts_per_second"];
      if (!rate.is_null()) puts += rate.get<double>();
      for (const auto& ns : json["namespaces"]) {
        if (ns["name"] == "model") lookups += ns["lookup_keys_per_second"].get<double>();
      }
    }
    EXPECT_EQ(count, 2);
  }
  traffic.join();
  EXPECT_GT(puts, 0);
  EXPECT_GT(lookups, 0);
}

TEST_F(TopTest, RefusesWhatItCannotDo) {
  Plain({"top", "-i", "1ms"}, 2);
  Plain({"top", "-i", "soon"}, 2);
  Plain({"top", "-s", "colour"}, 2);
}

TEST_F(TopTest, LiveScreenQuitsOnQAndGivesTheTerminalBack) {
  InTerminal top(With({"top", "-i", "200ms"}));
  ASSERT_TRUE(top.Await(kEnterScreen)) << top.shown();
  ASSERT_TRUE(top.Await("store-0")) << top.shown();
  ASSERT_TRUE(top.Await("sort by gets"));
  EXPECT_FALSE(top.TerminalIsAsBefore());
  top.Type("s");
  ASSERT_TRUE(top.Await("sort by hits")) << "by gets now";
  top.Type("p");
  ASSERT_TRUE(top.Await("go on"));
  top.Type("pxyz ");
  ASSERT_TRUE(top.Await("pause"));
  top.Type("q");
  EXPECT_EQ(top.Wait(), 0) << top.shown();
  EXPECT_TRUE(top.Await(kShowCursor));
  EXPECT_TRUE(top.Await(kLeaveScreen));
  EXPECT_TRUE(top.TerminalIsAsBefore());
}

TEST_F(TopTest, CtrlCAndSignalsGiveTheTerminalBack) {
  for (const int signal : {0, SIGINT, SIGTERM, SIGHUP}) {
    InTerminal top(With({"top", "-i", "200ms"}));
    ASSERT_TRUE(top.Await("store-0")) << top.shown();
    signal == 0 ? top.Type("\x03") : top.Signal(signal);
    EXPECT_EQ(top.Wait(), 0) << signal << top.shown();
    EXPECT_TRUE(top.Await(kLeaveScreen)) << signal;
    EXPECT_TRUE(top.TerminalIsAsBefore()) << signal;
  }
}

TEST_F(TopTest, KeepsToTheWindow) {
  InTerminal top(With({"top", "-i", "200ms"}));
  ASSERT_TRUE(top.Await("store-0"));
  top.Resize(4, 20);
  // The footer goes to the last row of the new size.
  ASSERT_TRUE(top.Await("\x1b[4;1H"));
  ASSERT_TRUE(top.Await("\x1b[4;1H"));
  const std::string shown = top.shown();
  const size_t end = shown.rfind("\x1b[4;1H");
  const size_t begin = shown.rfind("\x1b[H", end);
  const std::string page = shown.substr(begin, end - begin);
  EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 3) << page;
  EXPECT_THAT(page, Not(HasSubstr("store-0")));
  top.Type("q");
  EXPECT_EQ(top.Wait(), 0);
}

TEST_F(TopTest, SurvivesTheMastersRestart) {
  InTerminal top(With({"top", "-i", "200ms"}));
  ASSERT_TRUE(top.Await("store-0"));
  master_->Signal(SIGKILL);
  ASSERT_TRUE(master_->WaitFor(absl::Seconds(30)));
  ASSERT_TRUE(top.Await("NO ANSWER")) << top.shown();
  EXPECT_TRUE(top.Await("store-0"));  // what was known last
  master_ = daemons_.StartMaster();
  ASSERT_TRUE(top.Await("THE MASTER WAS STARTED AGAIN: epoch 1 before, 2 now")) << top.shown();
  top.Type("q");
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_TRUE(top.TerminalIsAsBefore());
}

TEST_F(TopTest, QuitsAtOnceThoughTheMasterHangs) {
  InTerminal top(With({"--timeout", "10m", "top", "-i", "100ms"}));
  ASSERT_TRUE(top.Await("store-0"));
  master_->Signal(SIGSTOP);
  top.Type(" ");
  top.Type("q");
  EXPECT_EQ(top.Wait(), 0) << top.shown();
  EXPECT_TRUE(top.TerminalIsAsBefore());
  master_->Signal(SIGCONT);
}

TEST_F(TopTest, WrongPortsAreNamed) {
  const std::string grpc = daemons_.master().grpc;
  const std::string data = daemons_.master().data;
  const std::string http = daemons_.master().http;
  const auto complaint = [&](const std::vector<std::string>& words) {
    std::vector<const char*> argv = {"cisternctl", "--timeout", "3s"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    std::ostringstream out;
    std::ostringstream err;
    EXPECT_EQ(ctl::RunApp(static_cast<int>(argv.size()), argv.data(), out, err), 3) << err.str();
    return err.str();
  };
  EXPECT_THAT(complaint({"--master", data, "stats"}),
              HasSubstr(data + " is a master's data port, for clients; cisternctl needs its gRPC "
                               "port: --master 127.0.0.1:7601"));
  EXPECT_THAT(complaint({"--master", daemons_.store().data, "stats"}),
              HasSubstr("is a store's data port"));
  EXPECT_THAT(complaint({"--master", http, "stats"}),
              HasSubstr("is the master's HTTP port; cisternctl needs its gRPC port: --master " +
                        grpc + "\n"));
  EXPECT_THAT(complaint({"--master", daemons_.store().http, "stats"}),
              HasSubstr("is a store's HTTP port; cisternctl asks the master: --master " + grpc));
  EXPECT_THAT(complaint({"--data", grpc, "ping"}), HasSubstr("is a gRPC port"));
  EXPECT_THAT(complaint({"--data", daemons_.store().data, "ping"}),
              HasSubstr("is a store's data port; --data names the master's"));
  EXPECT_THAT(complaint({"--data", http, "ping"}),
              HasSubstr("is the master's HTTP port; this needs its data port: --data " + data));
}

}  // namespace
}  // namespace cistern
