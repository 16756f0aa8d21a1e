// What cisternctl says when stores are away, and when the address is not what it takes it for.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/eventually.h"
#include "base/test_util.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/daemons.h"
#include "tests/integration/run_ctl.h"

namespace cistern {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CtlAwayTest : public testing::Test {
 protected:
  void SetUp() override {
    master_ = daemons_.StartMaster();
    store_ = daemons_.StartStore();
    ASSERT_TRUE(Eventually([&] {
      return RunCtl({"-m", daemons_.master().grpc, "stores"}).out.find("serving") !=
             std::string::npos;
    }));
    std::ofstream(file_) << PatternBytes(1, 10'000);
    const Ran put = Run({"put", "greeting", file_});
    ASSERT_EQ(put.exit_code, 0) << put.err;
  }
  Ran Run(std::vector<std::string> words) {
    words.insert(words.begin(), {"-m", daemons_.master().grpc, "-d", daemons_.master().data});
    return RunCtl(words);
  }
  void KillStore() {
    store_->Signal(SIGKILL);
    ASSERT_TRUE(store_->WaitFor(absl::Seconds(30)));
    ASSERT_TRUE(Eventually([&] { return Run({"stores"}).out.find("dead") != std::string::npos; }));
  }

  TempDir dir_;
  const std::string file_ = dir_ / "file";
  Daemons daemons_;
  std::unique_ptr<pool::ChildProcess> master_;
  std::unique_ptr<pool::ChildProcess> store_;
};

TEST_F(CtlAwayTest, ChunkWhoseOnlyStoreIsAwayIsNoMiss) {
  const Ran list = Run({"-o", "json", "chunks", "ls"});
  const size_t at = list.out.find("\"id\": \"");
  ASSERT_NE(at, std::string::npos) << list.out;
  const std::string id = list.out.substr(at + 7, 32);
  EXPECT_EQ(Run({"chunks", "stat", id}).exit_code, 0);  // an id needs no namespace
  ASSERT_NO_FATAL_FAILURE(KillStore());
  const Ran get = Run({"get", "greeting", dir_ / "copy"});
  EXPECT_EQ(get.exit_code, 3) << get.err;
  EXPECT_THAT(get.err, HasSubstr("store store-0, which is away"));
  EXPECT_NE(access((dir_ / "copy").c_str(), F_OK), 0);
  for (const Ran& stat : {Run({"chunks", "stat", "-n", "cisternctl", "-k", "greeting"}),
                          Run({"chunks", "stat", id})}) {
    EXPECT_EQ(stat.exit_code, 3) << stat.err;
    EXPECT_THAT(stat.out, HasSubstr("not serving"));
    EXPECT_THAT(stat.err, HasSubstr("store store-0, which is away"));
  }
  const Ran rm = Run({"chunks", "rm", "-n", "cisternctl", "-k", "greeting", "--timeout", "2s"});
  EXPECT_EQ(rm.exit_code, 3) << rm.out << rm.err;
  // With no store nobody knows.
  const Ran other = Run({"get", "other", dir_ / "copy"});
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("no store of the pool serves"));
  const Ran put = Run({"put", "other", file_, "--timeout", "2s"});
  EXPECT_THAT(put.exit_code, AnyOf(1, 3)) << put.err;
  EXPECT_THAT(put.err, HasSubstr("store"));

  store_ = daemons_.StartStore();
  EXPECT_TRUE(Eventually([&] { return Run({"get", "greeting", dir_ / "copy"}).exit_code == 0; }));
  EXPECT_EQ(ReadFile(dir_ / "copy"), PatternBytes(1, 10'000));
  const Ran miss = Run({"get", "other", dir_ / "copy"});
  EXPECT_EQ(miss.exit_code, 1) << miss.err;
  EXPECT_THAT(miss.err, HasSubstr("no chunk 'other'"));
}

// A store that is stopped hangs: it is not known to be away yet.
TEST_F(CtlAwayTest, StoreThatHangsIsAnAnswerThatDoesNotCome) {
  store_->Signal(SIGSTOP);
  const Ran get = Run({"get", "greeting", dir_ / "copy", "--timeout", "1s"});
  store_->Signal(SIGCONT);
  EXPECT_EQ(get.exit_code, 3) << get.err;
}

// Listens and answers whatever comes with one text.
class Talker {
 public:
  explicit Talker(std::string text) : text_(std::move(text)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    socklen_t bytes = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] {
      for (int peer; (peer = accept(fd_, nullptr, nullptr)) >= 0; close(peer)) {
        (void)send(peer, text_.data(), text_.size(), MSG_NOSIGNAL);
        char buffer[512];
        (void)recv(peer, buffer, sizeof(buffer), 0);
      }
    });
  }
  ~Talker() {
    shutdown(fd_, SHUT_RDWR);  // ends the accept
    thread_.join();
    close(fd_);
  }
  const std::string& address() const { return address_; }

 private:
  const std::string text_;
  std::string address_;
  int fd_ = -1;
  std::thread thread_;
};

// What the library says, and cisternctl: the address, and what is there.
TEST_F(CtlAwayTest, AddressOfSomethingElseIsSaidToBe) {
  const Talker ssh("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
  const struct {
    std::string address;
    std::string library;
    std::string ctl;
  } cases[] = {
      {daemons_.master().grpc, "grpc_port", "is a gRPC port"},
      {daemons_.master().http, "http_port", "is the master's HTTP port"},
      {daemons_.store().http, "http_port", "is a store's HTTP port"},
      {ssh.address(), "SSH-2.0-OpenSSH", "is no port of a Cistern daemon"},
  };
  for (const auto& c : cases) {
    ClientOptions options;
    options.master_address = c.address;
    const absl::Status status = Client::Connect(options).status();
    ASSERT_FALSE(status.ok()) << c.address;
    EXPECT_THAT(status.ToString(), HasSubstr(c.address));
    EXPECT_THAT(status.ToString(), HasSubstr(c.library));
    EXPECT_THAT(status.ToString(), Not(HasSubstr("never-sent")));
    const Ran ping = RunCtl({"-d", c.address, "ping"});
    EXPECT_EQ(ping.exit_code, 3) << ping.err;
    EXPECT_THAT(ping.err, HasSubstr(c.address));
    EXPECT_THAT(ping.err, HasSubstr(c.ctl));
    EXPECT_THAT(ping.err, Not(HasSubstr("never-sent")));
  }
  for (const std::string& address : {daemons_.master().data, daemons_.master().http,
                                     daemons_.store().data, daemons_.store().http, ssh.address()}) {
    const Ran version = RunCtl({"-m", address, "version"});
    EXPECT_EQ(version.exit_code, 3) << version.err;
    EXPECT_THAT(version.err, AnyOf(HasSubstr(address + " is "),
                                   HasSubstr("listens at " + address + " is no port")));
  }
}

}  // namespace
}  // namespace cistern
