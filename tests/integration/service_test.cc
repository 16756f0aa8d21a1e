// The daemons as a service manager has them: notifications, signals, exit codes, a clean end with
// calls in progress.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/digest.h"
#include "base/key_hash.h"
#include "base/ops/http_testing.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "tests/integration/daemons.h"
#include "transport/stream/raw_peer.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using transport::FrameType;
using transport::RawPeer;

constexpr absl::Duration kPatience = absl::Seconds(30);

// systemd's end of the notifications of every daemon that is started while it lives.
class Manager {
 public:
  // Not in the test's own folder: a socket's path has 107 bytes at most.
  Manager() : path_("/tmp/cistern-manager-" + std::to_string(getpid())) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    unlink(path_.c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  ~Manager() {
    close(fd_);
    unlink(path_.c_str());
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
  }
  // The next message that has this line in it; "" after half a minute without.
  std::string Await(const std::string& line) {
    char buffer[2048];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof(buffer), 0)) >= 0;) {
      std::string message(buffer, static_cast<size_t>(n));
      if (("\n" + message).find("\n" + line) != std::string::npos) return message;
    }
    return "";
  }

 private:
  const std::string path_;
  int fd_ = -1;
};

// A put in the store of all but its last byte.
struct HalfPut {
  std::unique_ptr<RawPeer> peer;
  std::string rest;
};

HalfPut BeginPut(const std::string& address) {
  HalfPut half;
  half.peer = std::make_unique<RawPeer>(PortOf(address));
  EXPECT_TRUE(half.peer->Handshake(transport::LocalIdentity()));
  wire::BindNamespace bind;
  bind.set_name("model");
  bind.set_fingerprint("fp");
  bind.set_id(std::string(DeriveNamespaceId("", "model", "fp").view()));
  bind.set_deadline_ms(20'000);
  half.peer->SendFrame(FrameType::kBindNamespace, 1, bind.SerializeAsString());
  EXPECT_TRUE(half.peer->Receive().has_value());
  const std::string bytes(8192, 'b');
  wire::PutRequest put;
  put.set_ns_ref(1);
  put.set_ids(std::string(16, 'k'));
  const uint32_t length = static_cast<uint32_t>(bytes.size());
  put.set_lengths(std::string(reinterpret_cast<const char*>(&length), 4));
  put.set_digest(wire::DIGEST_PRODUCER);
  put.set_deadline_ms(60'000);
  put.set_payload_inline(true);
  const PartDigest digest = DigestOf(bytes.data(), bytes.size());
  const std::string frame =
      transport::RawFrame(FrameType::kPut, 2, put.SerializeAsString(),
                          bytes + std::string(reinterpret_cast<const char*>(&digest), 8));
  EXPECT_TRUE(half.peer->Send(frame.substr(0, frame.size() - 1)));
  half.rest = frame.substr(frame.size() - 1);
  return half;
}

bool AwaitCallInProgress(const std::string& http) {
  for (int i = 0; i < 3000; ++i) {
    const std::string page = HttpGet(PortOf(http), "/metrics").body;
    if (MetricValue(page, "cistern_store_calls_in_progress") == 1) return true;
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
  return false;
}

TEST(ServiceTest, DaemonsTellSystemdWhenTheyServeAndWhenTheyStop) {
  Daemons daemons;
  Manager manager;
  setenv("WATCHDOG_USEC", "300000", 1);
  auto master = daemons.StartMaster();
  EXPECT_THAT(manager.Await("READY=1"), HasSubstr("STATUS=epoch 1, 0 stores serving"));
  EXPECT_EQ(manager.Await("WATCHDOG=1"), "WATCHDOG=1\n");
  EXPECT_EQ(manager.Await("WATCHDOG=1"), "WATCHDOG=1\n");
  master->Signal(SIGTERM);
  EXPECT_THAT(manager.Await("STOPPING=1"), HasSubstr("STATUS=stopping"));
  ASSERT_TRUE(master->WaitFor(kPatience));
  EXPECT_EQ(master->exit_code(), 0) << master->LogTail();

  master = daemons.StartMaster();
  EXPECT_THAT(manager.Await("READY=1"), HasSubstr("STATUS=epoch 2"));
  auto store = daemons.StartStore();
  EXPECT_THAT(manager.Await("STATUS=starting"), Not(HasSubstr("READY")));
  EXPECT_THAT(manager.Await("READY=1"), HasSubstr("0 chunks"));
  EXPECT_EQ(manager.Await("WATCHDOG=1"), "WATCHDOG=1\n");
  store->Signal(SIGINT);
  EXPECT_THAT(manager.Await("STOPPING=1"), HasSubstr("STATUS=stopping"));
  ASSERT_TRUE(store->WaitFor(kPatience));
  EXPECT_EQ(store->exit_code(), 0) << store->LogTail();
}

TEST(ServiceTest, StoreFinishesAPutInProgressAndExitsWithZero) {
  Daemons daemons;
  auto master = daemons.StartMaster();
  auto store = daemons.StartStore({"stop_grace=60s"});
  HalfPut half = BeginPut(daemons.store().data);
  ASSERT_TRUE(AwaitCallInProgress(daemons.store().http));
  store->Signal(SIGTERM);
  // It is stopping, and still there for the put.
  HttpReply health;
  for (int i = 0; i < 3000 && health.body.find("stopping") == std::string::npos; ++i) {
    health = HttpGet(PortOf(daemons.store().http), "/healthz");
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("\"stopping\""));
  EXPECT_EQ(access((daemons.run_dir("store") + "/endpoints.json").c_str(), F_OK), -1);
  ASSERT_TRUE(store->Running());
  EXPECT_TRUE(half.peer->Send(half.rest));
  const auto done = half.peer->Receive();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->header.type, FrameType::kPutDone);
  ASSERT_TRUE(store->WaitFor(kPatience));
  EXPECT_EQ(store->exit_code(), 0) << store->LogTail();
}

TEST(ServiceTest, SecondSignalDoesNotWaitForThePut) {
  Daemons daemons;
  auto master = daemons.StartMaster();
  auto store = daemons.StartStore({"stop_grace=60s"});
  HalfPut half = BeginPut(daemons.store().data);
  ASSERT_TRUE(AwaitCallInProgress(daemons.store().http));
  store->Signal(SIGTERM);
  for (int i = 0; i < 3000; ++i) {
    if (HttpGet(PortOf(daemons.store().http), "/healthz").body.find("stopping") !=
        std::string::npos) {
      break;
    }
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
  ASSERT_TRUE(store->Running());
  store->Signal(SIGINT);
  ASSERT_TRUE(store->WaitFor(kPatience));
  EXPECT_EQ(store->exit_code(), 0) << store->LogTail();
  EXPECT_THAT(store->LogTail(), HasSubstr("another signal"));
  EXPECT_TRUE(half.peer->WaitClosed());
}

TEST(ServiceTest, SignalEndsAStoreThatWaitsForItsFirstMaster) {
  Daemons daemons;
  Manager manager;
  // No master there.
  auto child = pool::ChildProcess::Start(
      {.name = "store",
       .argv = {"store/cistern-store", "--set", "data_dir=" + testing::TempDir() + "/lonely",
                "--set", "data_port=0", "--set", "http_port=0", "--set",
                "master_address=127.0.0.1:1", "--set",
                "segment_dir=" + testing::TempDir() + "/lonely-segments", "--set",
                "segment[0].size=8MiB"},
       .log_path = daemons.log("lonely")},
      Clock::Real());
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT(manager.Await("STATUS=starting"), HasSubstr("waits for its master"));
  (*child)->Signal(SIGTERM);
  ASSERT_TRUE((*child)->WaitFor(kPatience));
  EXPECT_EQ((*child)->exit_code(), 0) << (*child)->LogTail();
}

// What a daemon that is to end at once does: its exit code and what it printed.
struct Ended {
  int exit_code = -1;
  std::string log;
};

Ended RunToItsEnd(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {name + "/cistern-" + name};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const TempDir dir;
  auto child = pool::ChildProcess::Start(
      {.name = name, .argv = std::move(argv), .log_path = dir / "log"}, Clock::Real());
  EXPECT_TRUE(child.ok()) << child.status();
  if (!child.ok()) return {};
  EXPECT_TRUE((*child)->WaitFor(kPatience)) << name << " goes on";
  return {(*child)->exit_code(), ReadFile(dir / "log")};
}

// systemd does not start again what ends with 2.
TEST(ServiceTest, WrongConfigurationEndsBothDaemonsWithTwo) {
  const TempDir dir;
  WriteFile(dir / "open", "a secret that everybody can read, 32 bytes and more", 0644);
  WriteFile(dir / "short", "too short", 0600);
  for (const std::string daemon : {"master", "store"}) {
    std::vector<std::string> good = {
        "--set", "data_dir=" + (dir / daemon), "--set", "data_port=0", "--set", "http_port=0"};
    if (daemon == "master") {
      good.insert(good.end(), {"--set", "grpc_port=0"});
    } else {
      good.insert(good.end(),
                  {"--set", "segment_dir=" + (dir / "segments"), "--set", "segment[0].size=8MiB"});
    }
    for (const std::string& file : {dir / "none", dir / "open", dir / "short", dir.path()}) {
      std::vector<std::string> arguments = good;
      arguments.insert(arguments.end(), {"--set", "pool_token_file=" + file});
      const Ended ended = RunToItsEnd(daemon, arguments);
      EXPECT_EQ(ended.exit_code, 2) << daemon << " with " << file << ": " << ended.log;
      EXPECT_THAT(ended.log, HasSubstr("pool_token_file"));
      EXPECT_THAT(ended.log, HasSubstr(file));
    }
    const Ended bare = RunToItsEnd(daemon, {});
    EXPECT_EQ(bare.exit_code, 2) << bare.log;
    EXPECT_THAT(bare.log, HasSubstr("missing required key \"data_dir\""));
    EXPECT_THAT(bare.log, HasSubstr("--config"));
    EXPECT_THAT(bare.log, Not(HasSubstr(":1: ")));
    const Ended nofile = RunToItsEnd(daemon, {"--config", dir / "none.toml"});
    EXPECT_EQ(nofile.exit_code, 2) << nofile.log;
    EXPECT_THAT(nofile.log, HasSubstr("none.toml"));
  }
}

TEST(ServiceTest, StartUpPrintsEveryKeyWithItsSourceAndNoSecret) {
  Daemons daemons;
  const std::string token_path = testing::TempDir() + "/token-" + std::to_string(getpid());
  {
    std::ofstream out(token_path);
    out << "a secret that must not be printed, 32 bytes and more";
  }
  ASSERT_EQ(chmod(token_path.c_str(), 0600), 0);
  auto master = daemons.StartMaster({"pool_token_file=" + token_path, "lease=7s"});
  auto store = daemons.StartStore({"pool_token_file=" + token_path});
  for (const std::string name : {"master", "store"}) {
    std::ifstream in(daemons.log(name));
    std::ostringstream text;
    text << in.rdbuf();
    const std::string log = text.str();
    EXPECT_THAT(log, Not(HasSubstr("a secret"))) << name;
    EXPECT_THAT(log, HasSubstr(token_path)) << name;
    EXPECT_THAT(log, testing::ContainsRegex("\nhttp_port +=.*\\(flag\\)\n")) << name;
    EXPECT_THAT(log, testing::ContainsRegex("\nstop_grace += 3s +\\(default\\)\n")) << name;
    EXPECT_THAT(log, testing::ContainsRegex("\nlog.level += info +\\(default\\)\n")) << name;
  }
  std::ifstream in(daemons.log("master"));
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_THAT(text.str(), testing::ContainsRegex("\nlease += 7s +\\(flag\\)\n"));
  unlink(token_path.c_str());
}

}  // namespace
}  // namespace cistern
