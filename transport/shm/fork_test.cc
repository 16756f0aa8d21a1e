// A fork's child lets go of a channel over shared memory: without the rings, which it must not
// have, and without a trace in what the parent goes on using.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/shm.h"

namespace cistern::transport {
namespace {

bool HasRing() {
  std::ifstream file("/proc/self/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  return absl::StrContains(maps.str(), "cistern-ring");
}

class ForkTest : public testing::Test {
 protected:
  ForkTest() {
    ShmServerOptions server;
    server.socket_path = folder_ / "store.sock";
    auto listening = ListenShm(server, &handler_);
    EXPECT_THAT(listening, IsOk());
    server_ = *std::move(listening);
    auto io = IoContext::Create({});
    EXPECT_THAT(io, IsOk());
    io_ = *std::move(io);
    ShmChannelOptions options;
    options.socket_path = server.socket_path;
    options.connections = 1;
    channel_ = MakeShmChannel(io_.get(), options);
  }
  ~ForkTest() override {
    channel_.reset();
    server_->Stop();
  }
  // By the rings, more than they hold.
  std::string Put() {
    TestCall call;
    CallGroup group;
    call.after_ready = [] {
      return std::make_unique<PatternSource>(Pattern(3, 5'000'000), 100'000);
    };
    channel_->Start(MakeSpec(FrameType::kPut, "ready 5000000 9999 3", absl::Seconds(20)), &call,
                    &group);
    io_->Wait(group);
    return call.status->ok() ? call.meta : std::string(call.status->message());
  }

  const TempDir folder_;
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<IoContext> io_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(ForkTest, ChildLetsGoAndTheParentsConnectionGoesOn) {
  EXPECT_EQ(Put(), "right");
  EXPECT_THAT(RoundTrip(*io_, *channel_, "echo x"), IsOk());  // the small lane, too
  EXPECT_TRUE(HasRing());
  const uint64_t connections = server_->stats().connections;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (HasRing()) _exit(1);
    channel_->AbandonAfterFork();
    io_->AbandonAfterFork();
    TestCall call;
    CallGroup group;
    channel_->Start(MakeSpec(FrameType::kPut, "put 0 1 3", absl::Seconds(20)), &call, &group);
    if (call.ends != 1 || !absl::IsFailedPrecondition(*call.status)) _exit(2);
    channel_.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Put(), "right");
  EXPECT_THAT(RoundTrip(*io_, *channel_, "echo x"), IsOk());
  EXPECT_EQ(channel_->stats().reconnects, 0u);
  EXPECT_EQ(server_->stats().connections, connections);
  EXPECT_EQ(handler_.disconnected, 0);
}

}  // namespace
}  // namespace cistern::transport
