// CallMeter between a real wire and the handler that does what requests say.
#include "transport/call_meter.h"

#include <map>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/stream/raw_peer.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

class CallMeterTest : public testing::Test {
 protected:
  CallMeterTest() : meter_({{FrameType::kGet, "get"}, {FrameType::kPut, "put"}}, Clock::Real()) {
    meter_.SetHandler(&handler_);
    TcpServerOptions options;
    options.identity.token = client_.token = "a token of more than thirty-two bytes";
    options.identity.peer_id = "store-id-16bytes";
    auto server = ListenTcp(options, &meter_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    peer_ = std::make_unique<RawPeer>(server_->port());
    EXPECT_TRUE(peer_->Handshake(client_));
  }
  ~CallMeterTest() override {
    server_.reset();
    handler_.ReleaseHeld();
  }

  uint64_t Count(const std::string& call, absl::StatusCode code) const {
    for (const CallMeter::Series& series : meter_.Read()) {
      if (series.call == call && series.code == code) return series.seconds.total();
    }
    return 0;
  }
  void AwaitCount(const std::string& call, absl::StatusCode code, uint64_t n) {
    handler_.Await([&] { return Count(call, code) == n; });
  }

  TestHandler handler_;
  CallMeter meter_;
  LocalIdentity client_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<RawPeer> peer_;
};

TEST_F(CallMeterTest, CountsByCallAndCode) {
  using enum absl::StatusCode;
  peer_->SendFrame(FrameType::kGet, 1, "echo x");
  peer_->SendFrame(FrameType::kGet, 2, "fail y");
  peer_->SendFrame(FrameType::kPut, 3, "thread z");
  peer_->SendFrame(FrameType::kPing, 4, "drop");
  peer_->SendFrame(FrameType::kGet, 5, "get 3000000 70000 1");
  peer_->SendFrame(FrameType::kGet, 6, "short 1000 100 1");
  for (int answers = 0; answers < 6;) {
    const auto frame = peer_->Receive();
    ASSERT_TRUE(frame.has_value());
    if ((frame->header.flags & kFlagFinal) != 0) ++answers;
  }
  AwaitCount("get", kOk, 3);
  AwaitCount("get", kNotFound, 1);
  AwaitCount("put", kOk, 1);
  AwaitCount("other", kInternal, 1);
  handler_.Await([&] { return meter_.in_progress() == 0; });
}

TEST_F(CallMeterTest, ShowsEveryCallFromTheStart) {
  std::map<std::string, int> seen;
  for (const CallMeter::Series& series : meter_.Read()) {
    EXPECT_EQ(series.code, absl::StatusCode::kOk);
    EXPECT_EQ(series.seconds.total(), 0u);
    ++seen[series.call];
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{{"get", 1}, {"other", 1}, {"put", 1}}));
}

TEST_F(CallMeterTest, CallThatEndsFromOutsideIsCancelled) {
  peer_->SendFrame(FrameType::kGet, 1, "hold");
  handler_.Await([&] { return handler_.held() == 1; });
  EXPECT_EQ(meter_.in_progress(), 1u);
  peer_.reset();
  handler_.Await([&] { return handler_.aborts == 1; });
  EXPECT_EQ(meter_.in_progress(), 1u);  // until the handler lets go of it
  handler_.ReleaseHeld();
  EXPECT_EQ(Count("get", absl::StatusCode::kCancelled), 1u);
  EXPECT_EQ(meter_.in_progress(), 0u);
}

TEST_F(CallMeterTest, PayloadThatNobodyTakesCountsAsItsEnd) {
  RawPeer slow(server_->port(), /*receive_buffer_bytes=*/4096);
  ASSERT_TRUE(slow.Handshake(client_));
  slow.SendFrame(FrameType::kGet, 1, "get 50000000 1000000 1");
  handler_.Await([&] { return handler_.requests == 1; });
  EXPECT_EQ(meter_.in_progress(), 1u);
  server_->Stop();
  AwaitCount("get", absl::StatusCode::kUnavailable, 1);
  EXPECT_EQ(meter_.in_progress(), 0u);
}

TEST_F(CallMeterTest, OnceClosedItTurnsRequestsAwayAndWaitsForTheOthers) {
  peer_->SendFrame(FrameType::kGet, 1, "hold");
  handler_.Await([&] { return handler_.held() == 1; });
  meter_.Close();
  EXPECT_EQ(meter_.WaitIdle(absl::ZeroDuration()), 1u);
  peer_->SendFrame(FrameType::kGet, 2, "echo x");
  const auto refused = peer_->Receive();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->header.request_id, 2u);
  EXPECT_EQ(refused->header.type, FrameType::kError);
  EXPECT_EQ(meter_.turned_away(), 1u);
  EXPECT_EQ(handler_.requests, 1);
  std::thread releaser([&] { handler_.ReleaseHeld(); });
  EXPECT_EQ(meter_.WaitIdle(absl::Minutes(1)), 0u);
  releaser.join();
  // The answer leaves although the server stops right now.
  server_->Stop();
  const auto answer = peer_->Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.request_id, 1u);
  EXPECT_EQ(answer->meta, "released");
}

TEST_F(CallMeterTest, HurryEndsTheWait) {
  peer_->SendFrame(FrameType::kGet, 1, "hold");
  handler_.Await([&] { return handler_.held() == 1; });
  meter_.Close();
  std::thread hurry([&] { meter_.Hurry(); });
  EXPECT_EQ(meter_.WaitIdle(absl::Hours(1)), 1u);
  hurry.join();
  EXPECT_EQ(meter_.WaitIdle(absl::Hours(1)), 1u);
}

TEST_F(CallMeterTest, ServerThatStopsAcceptingServesWhoIsThere) {
  server_->StopAccepting();
  server_->StopAccepting();
  EXPECT_FALSE(RawPeer(server_->port()).connected());
  peer_->SendFrame(FrameType::kGet, 1, "echo still");
  const auto answer = peer_->Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "still");
}

TEST_F(CallMeterTest, ServerTellsWhetherItsThreadsComeRound) {
  EXPECT_TRUE(server_->Responsive(absl::Minutes(1)));
  // A handler that breaks the rule and blocks its thread.
  Mutex mutex;
  CondVar changed;
  bool blocked = false;
  bool go = false;
  class Blocker final : public RequestHandler {
   public:
    explicit Blocker(std::function<void()> block) : block_(std::move(block)) {}
    void OnRequest(std::unique_ptr<ServerCall>) override { block_(); }

   private:
    const std::function<void()> block_;
  };
  Blocker blocker([&] {
    MutexLock lock(mutex);
    blocked = true;
    changed.NotifyAll();
    while (!go) changed.Wait(mutex);
  });
  meter_.SetHandler(&blocker);
  peer_->SendFrame(FrameType::kGet, 1, "");
  {
    MutexLock lock(mutex);
    while (!blocked) changed.Wait(mutex);
  }
  EXPECT_FALSE(server_->Responsive(absl::Milliseconds(20)));
  {
    MutexLock lock(mutex);
    go = true;
    changed.NotifyAll();
  }
  EXPECT_TRUE(server_->Responsive(absl::Minutes(1)));
  server_->Stop();
  EXPECT_TRUE(server_->Responsive(absl::Minutes(1)));
}

}  // namespace
}  // namespace cistern::transport
