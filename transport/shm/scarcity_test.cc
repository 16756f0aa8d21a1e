// Ends that are short of memory or of descriptors: payload goes another way, and nobody is said to
// have done wrong.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/fd_socket.h"
#include "transport/shm/format.h"
#include "transport/shm/shm.h"
#include "transport/stream/raw_peer.h"

namespace cistern::transport {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRing = 256 << 10;

class ScarcityTest : public testing::Test {
 protected:
  ~ScarcityTest() override {
    DisarmFaults();
    channel_.reset();
    if (server_ != nullptr) server_->Stop();
  }
  void Listen(uint64_t max_mapped_bytes = 1 << 30) {
    ShmServerOptions options;
    options.socket_path = path_;
    options.ring_bytes = kRing;
    options.max_mapped_bytes = max_mapped_bytes;
    auto server = ListenShm(options, &handler_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  void Connect() {
    auto io = IoContext::Create({});
    ASSERT_THAT(io, IsOk());
    io_ = *std::move(io);
    ShmChannelOptions options;
    options.socket_path = path_;
    channel_ = MakeShmChannel(io_.get(), options);
  }

  const TempDir folder_;
  const std::string path_ = folder_ / "store.sock";
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<IoContext> io_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(ScarcityTest, StoreWithoutARingServesPutsAndGetsThroughTheSocket) {
  ASSERT_THAT(ArmFault("shm.ring:error:0"), IsOk());
  Listen();
  Connect();
  TestCall put;
  CallGroup group;
  put.after_ready = [] { return std::make_unique<PatternSource>(Pattern(3, 700'000), 100'000); };
  channel_->Start(MakeSpec(FrameType::kPut, "ready 700000 9999 3", absl::Seconds(20)), &put,
                  &group);
  io_->Wait(group);
  ASSERT_TRUE(put.status->ok()) << *put.status;
  EXPECT_EQ(put.meta, "right");

  std::string memory(700'000, '\0');
  PatternSink sink(memory.data(), memory.size(), 50'000);
  TestCall get;
  get.sink = &sink;
  channel_->Start(MakeSpec(FrameType::kGet, "get 700000 9999 4", absl::Seconds(20)), &get, &group);
  io_->Wait(group);
  ASSERT_TRUE(get.status->ok()) << *get.status;
  EXPECT_TRUE(memory == Pattern(4, 700'000));
  EXPECT_GT(FaultActions("shm.ring"), 0u);
}

TEST_F(ScarcityTest, WhatWasSetAsideForARingThatCouldNotBeMadeIsForTheNext) {
  ASSERT_THAT(ArmFault("shm.ring:error:1"), IsOk());
  Listen(RingMemoryBytes(kRing));  // for one
  RawPeer without(path_);
  ASSERT_TRUE(without.Handshake({})) << without.refusal();
  EXPECT_TRUE(without.fds().empty());
  RawPeer with(path_);
  ASSERT_TRUE(with.Handshake({})) << with.refusal();
  EXPECT_EQ(with.fds().size(), 2u);
}

TEST_F(ScarcityTest, ClientThatCannotMapARingSaysUnavailable) {
  ASSERT_THAT(ArmFault("shm.adopt:error:0"), IsOk());
  Listen();
  Connect();
  EXPECT_THAT(RoundTrip(*io_, *channel_, "echo x", absl::Seconds(20), /*small=*/false).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fault")));
  EXPECT_THAT(RoundTrip(*io_, *channel_, "echo x"), IsOk());  // needs none
}

class FdSocketTest : public testing::Test {
 protected:
  FdSocketTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~FdSocketTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  void SendTwo() {
    char byte = 'x';
    const iovec piece = {&byte, 1};
    const std::vector<int> fds = {ends_[0], ends_[1]};
    const auto sent = WriteWithFds(ends_[0], {&piece, 1}, fds);
    ASSERT_THAT(sent, IsOk());
    EXPECT_EQ(*sent, 1u);
  }
  absl::Status Receive(size_t max_fds) {
    char byte;
    const iovec piece = {&byte, 1};
    std::vector<OwnedFd> fds;
    return ReadWithFds(ends_[1], {&piece, 1}, max_fds, &fds).status();
  }

  int ends_[2];
};

TEST_F(FdSocketTest, NoDescriptorLeftIsUnavailable) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  SendTwo();
  const OwnedFd next(dup(ends_[0]));  // the lowest that was free
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get()) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = Receive(2);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("LimitNOFILE")));
}

TEST_F(FdSocketTest, MoreThanWasAskedForIsThePeersFault) {
  for (const size_t wanted : {size_t{0}, size_t{1}}) {
    SendTwo();
    EXPECT_THAT(Receive(wanted), StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
  }
  SendTwo();
  EXPECT_THAT(Receive(2), IsOk());
}

}  // namespace
}  // namespace cistern::transport
