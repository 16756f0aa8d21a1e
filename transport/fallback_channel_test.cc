// Two real wires: shared memory where there is a socket, TCP.
#include "transport/fallback_channel.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/eventually.h"
#include "base/fault.h"
#include "base/test_util.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

using testing::HasSubstr;

// A socket whose owner accepts nobody.
class SilentSocket {
 public:
  explicit SilentSocket(const std::string& path)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 10), 0);
  }
  ~SilentSocket() { close(fd_); }
  SilentSocket(const SilentSocket&) = delete;
  SilentSocket& operator=(const SilentSocket&) = delete;

 private:
  const int fd_;
};

class FallbackChannelTest : public testing::Test {
 protected:
  FallbackChannelTest() {
    identity_.peer_id = "store-id-16bytes";
    auto io = IoContext::Create({});
    EXPECT_THAT(io, IsOk());
    io_ = *std::move(io);
    TcpServerOptions tcp;
    tcp.identity = identity_;
    auto server = ListenTcp(tcp, &tcp_handler_);
    EXPECT_THAT(server, IsOk());
    tcp_ = *std::move(server);
  }
  ~FallbackChannelTest() override {
    DisarmFaults();
    channel_.reset();
    tcp_->Stop();
    if (shm_ != nullptr) shm_->Stop();
  }
  void ListenOnSharedMemory(const std::string& peer_id = "store-id-16bytes") {
    ShmServerOptions shm;
    shm.socket_path = folder_ / "store.sock";
    shm.identity = identity_;
    shm.identity.peer_id = peer_id;
    auto server = ListenShm(shm, &shm_handler_);
    ASSERT_THAT(server, IsOk());
    shm_ = *std::move(server);
  }
  void Connect(absl::Duration retry_after = absl::Hours(1)) {
    FallbackOptions options;
    options.retry_after = retry_after;
    Connect(options, absl::Milliseconds(500));
  }
  void Connect(FallbackOptions options, absl::Duration connect_timeout) {
    ShmChannelOptions shm;
    shm.socket_path = folder_ / "store.sock";
    shm.expected_peer_id = "store-id-16bytes";
    shm.connect_timeout = connect_timeout;
    TcpChannelOptions tcp;
    tcp.host = "127.0.0.1";
    tcp.port = tcp_->port();
    options.on_choice = [this](const absl::Status& why) {
      choices_.push_back(why);
      ++decided_;
      if (at_choice_ != nullptr) at_choice_();
    };
    channel_ = MakeFallbackChannel(MakeShmChannel(io_.get(), shm), MakeTcpChannel(io_.get(), tcp),
                                   options);
  }
  // As the client library calls stores: rather another one than to wait.
  absl::StatusOr<std::string> Echo(bool small = false) {
    TestCall call;
    CallGroup group;
    CallSpec spec = MakeSpec(FrameType::kPing, "echo x", absl::Seconds(10));
    spec.fail_fast = true;
    spec.small = small;
    channel_->Start(std::move(spec), &call, &group);
    io_->Wait(group);
    if (!call.status->ok()) return *call.status;
    return call.meta;
  }

  const TempDir folder_;
  LocalIdentity identity_;
  TestHandler tcp_handler_;
  TestHandler shm_handler_;
  std::unique_ptr<IoContext> io_;
  std::unique_ptr<WireServer> tcp_;
  std::unique_ptr<WireServer> shm_;
  std::vector<absl::Status> choices_;
  std::atomic<size_t> decided_{0};  // choices_ may be looked at so far, from another thread
  std::function<void()> at_choice_;
  std::unique_ptr<Channel> channel_;
};

TEST_F(FallbackChannelTest, TakesTheBetterWhereItAnswers) {
  ListenOnSharedMemory();
  Connect();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "shm");
  EXPECT_EQ(tcp_handler_.requests, 0);
  EXPECT_EQ(shm_handler_.requests, 4);  // and the one that asked
  ASSERT_EQ(choices_.size(), 1u);
  EXPECT_THAT(choices_[0], IsOk());
}

// At the choice the call is with neither channel: the one's has ended, the other's has not begun.
TEST_F(FallbackChannelTest, CancelBetweenTheTwoIsNotMissed) {
  Connect();
  TestCall call;
  CallGroup group;
  at_choice_ = [&group] { group.Cancel(); };
  // One that is never answered, so that only the cancel ends it before its deadline.
  channel_->Start(MakeSpec(FrameType::kPing, "hold", absl::Seconds(30)), &call, &group);
  const MonoTime start = Clock::Real().Mono();
  io_->Wait(group);
  EXPECT_THAT(*call.status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_LT(Clock::Real().Mono() - start, absl::Seconds(20));
  at_choice_ = nullptr;
}

// The better one has neither answered nor failed: it never will, within the test.
TEST_F(FallbackChannelTest, InBackgroundNoCallWaits) {
  const SilentSocket silent(folder_ / "store.sock");
  FallbackOptions options;
  options.in_background = true;
  options.patience = absl::Hours(1);
  Connect(options, /*connect_timeout=*/absl::Hours(1));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Echo(/*small=*/i == 1), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  EXPECT_EQ(tcp_handler_.requests, 3);
  EXPECT_EQ(decided_, 0u);
}

TEST_F(FallbackChannelTest, InBackgroundTakesTheBetterWhenItHasAnswered) {
  ListenOnSharedMemory();
  FallbackOptions options;
  options.in_background = true;
  options.patience = absl::Minutes(1);
  Connect(options, /*connect_timeout=*/absl::Minutes(1));
  EXPECT_THAT(Echo(), IsOk());  // by either
  EXPECT_TRUE(Eventually([&] { return decided_ == 1; }));
  EXPECT_THAT(choices_[0], IsOk());
  const int by_tcp = tcp_handler_.requests;
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "shm");
  EXPECT_EQ(tcp_handler_.requests, by_tcp);
}

TEST_F(FallbackChannelTest, InBackgroundSaysWhyItStaysWithTheOther) {
  FallbackOptions options;
  options.in_background = true;
  Connect(options, absl::Milliseconds(500));
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_TRUE(Eventually([&] { return decided_ == 1; }));
  EXPECT_THAT(choices_[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("store.sock")));
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  EXPECT_EQ(tcp_handler_.requests, 2);
  EXPECT_EQ(decided_, 1u);  // not asked again so soon
}

TEST_F(FallbackChannelTest, TakesTheOtherWhereNobodyListens) {
  Connect();
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  EXPECT_EQ(tcp_handler_.requests, 3);
  ASSERT_EQ(choices_.size(), 1u);
  EXPECT_THAT(choices_[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("store.sock")));
}

TEST_F(FallbackChannelTest, TakesTheOtherWhereAnotherStoreAnswers) {
  ListenOnSharedMemory("another-id-16byt");
  Connect();
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(tcp_handler_.requests, 1);
  EXPECT_EQ(shm_handler_.requests, 0);
  ASSERT_EQ(choices_.size(), 1u);
  EXPECT_THAT(choices_[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another store")));
}

TEST_F(FallbackChannelTest, TakesTheOtherWhereOnlySmallCallsGetThrough) {
  ASSERT_THAT(ArmFault("shm.adopt:error:0"), IsOk());  // no ring can be mapped
  ListenOnSharedMemory();
  Connect();
  EXPECT_THAT(Echo(/*small=*/true), IsOk());
  EXPECT_EQ(tcp_handler_.requests, 0);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(tcp_handler_.requests, 3);
  EXPECT_THAT(Echo(/*small=*/true), IsOk());
  EXPECT_EQ(tcp_handler_.requests, 4);
  ASSERT_EQ(choices_.size(), 2u);
  EXPECT_THAT(choices_[0], IsOk());
  EXPECT_THAT(choices_[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fault")));
}

TEST_F(FallbackChannelTest, ComesBackWhenPayloadGetsThroughAndNotBefore) {
  ASSERT_THAT(ArmFault("shm.adopt:error:0"), IsOk());
  ListenOnSharedMemory();
  Connect(absl::Milliseconds(1));
  EXPECT_THAT(Echo(), IsOk());
  const MonoTime asked_again = Clock::Real().Mono() + absl::Milliseconds(50);
  while (Clock::Real().Mono() < asked_again) EXPECT_THAT(Echo(/*small=*/true), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  for (const absl::Status& choice : choices_) EXPECT_FALSE(choice.ok());
  DisarmFaults();
  const MonoTime end = Clock::Real().Mono() + absl::Seconds(10);
  while (channel_->peer().wire != "shm" && Clock::Real().Mono() < end) {
    EXPECT_THAT(Echo(/*small=*/true), IsOk());
  }
  EXPECT_EQ(channel_->peer().wire, "shm");
}

TEST_F(FallbackChannelTest, GoesOnByTheOtherWhenTheBetterIsGone) {
  ListenOnSharedMemory();
  Connect();
  EXPECT_THAT(Echo(), IsOk());
  shm_->Stop();
  // The first may leave into the dead connection, and the next find nobody there.
  for (int i = 0; i < 2 && !Echo().ok(); ++i) {
  }
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  EXPECT_EQ(choices_.size(), 2u);
}

TEST_F(FallbackChannelTest, TriesTheBetterAgainLater) {
  Connect(absl::Milliseconds(1));
  EXPECT_THAT(Echo(), IsOk());
  EXPECT_EQ(channel_->peer().wire, "tcp");
  ListenOnSharedMemory();
  const MonoTime end = Clock::Real().Mono() + absl::Seconds(10);
  while (channel_->peer().wire != "shm" && Clock::Real().Mono() < end) {
    EXPECT_THAT(Echo(), IsOk());
  }
  EXPECT_EQ(channel_->peer().wire, "shm");
}

TEST_F(FallbackChannelTest, PayloadAndPreamblesGoWithTheCall) {
  for (const bool better : {true, false}) {
    if (better) ListenOnSharedMemory();
    Connect();
    std::atomic<int> answers{0};
    channel_->AddPreamble(
        {FrameType::kBindNamespace, "echo bound", [&](uint64_t, FrameType, std::string_view meta) {
           EXPECT_EQ(meta, "bound");
           ++answers;
           return absl::OkStatus();
         }});
    TestCall call;
    CallGroup group;
    CallSpec spec = MakeSpec(FrameType::kPut, "put 500000 1000 6", absl::Seconds(10));
    spec.payload = std::make_unique<PatternSource>(Pattern(6, 500'000), 10'000);
    channel_->Start(std::move(spec), &call, &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.meta, "right");
    EXPECT_GE(answers, 1);
    channel_.reset();
    if (shm_ != nullptr) shm_->Stop();
  }
}

TEST_F(FallbackChannelTest, CancelAndDeadlineEndACallThatWaitsForTheChoice) {
  const SilentSocket silent(folder_ / "store.sock");
  Connect();
  TestCall cancelled;
  CallGroup group;
  channel_->Start(MakeSpec(FrameType::kPing, "echo x", absl::Seconds(10)), &cancelled, &group);
  group.Cancel();
  io_->Wait(group);
  EXPECT_EQ(cancelled.status->code(), absl::StatusCode::kCancelled) << *cancelled.status;
  EXPECT_TRUE(NeverSent(*cancelled.status));
  const auto late = RoundTrip(*io_, *channel_, "echo x", absl::Milliseconds(50));
  EXPECT_FALSE(late.ok());
  // With patience the other answers.
  EXPECT_THAT(Echo(), IsOk());
}

TEST_F(FallbackChannelTest, ClosingEndsWhatWaits) {
  const SilentSocket silent(folder_ / "store.sock");
  Connect();
  TestCall call;
  {
    CallGroup group([] {});
    channel_->Start(MakeSpec(FrameType::kPing, "echo x", absl::Seconds(10)), &call, &group);
    channel_.reset();
    EXPECT_EQ(group.pending(), 0);
  }
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled) << *call.status;
  EXPECT_EQ(tcp_handler_.requests, 0);
}

}  // namespace
}  // namespace cistern::transport
