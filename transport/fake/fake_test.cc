#include "transport/fake/fake.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/conformance/conformance.h"

namespace cistern::transport {
namespace {

class FakeWire final : public ConformanceWire {
 public:
  explicit FakeWire(const FakeNetwork::Options& options) : network_(options) {}
  absl::StatusOr<std::unique_ptr<WireServer>> Listen(const Server& options,
                                                     RequestHandler* handler) override {
    return network_.Listen({options.port, options.limits, options.identity}, handler);
  }
  std::unique_ptr<Channel> Connect(IoContext* io, uint16_t port, const Client& options) override {
    return network_.Connect(io, {port, options.identity, options.expected_peer_id});
  }
  bool has_backpressure() const override { return false; }

 private:
  FakeNetwork network_;
};

std::unique_ptr<ConformanceWire> MakePromptWire() {
  return std::make_unique<FakeWire>(FakeNetwork::Options());
}

std::unique_ptr<ConformanceWire> MakeUnrulyWire() {
  FakeNetwork::Options options;
  options.seed = 7;
  options.max_delay = absl::Microseconds(300);
  options.max_copy_delay = absl::Microseconds(300);
  options.payload_piece_bytes = 200'000;
  return std::make_unique<FakeWire>(options);
}

INSTANTIATE_TEST_SUITE_P(Prompt, WireConformance, testing::Values(&MakePromptWire));
INSTANTIATE_TEST_SUITE_P(Unruly, WireConformance, testing::Values(&MakeUnrulyWire));

// A stepped network under a fake clock.
class SteppedFakeTest : public testing::Test {
 protected:
  explicit SteppedFakeTest() : io_(*IoContext::Create({})) {}
  void Make(FakeNetwork::Options options) {
    options.clock = &clock_;
    options.stepped = true;
    network_ = std::make_unique<FakeNetwork>(options);
    server_ = *network_->Listen({}, &handler_);
    channel_ = network_->Connect(io_.get(), {server_->port(), {}, ""});
  }
  CallSpec Spec(std::string meta, absl::Duration deadline) {
    CallSpec spec;
    spec.type = FrameType::kGet;
    spec.meta = std::move(meta);
    spec.deadline = clock_.Mono() + deadline;
    return spec;
  }
  // Moves time from event to event until `group` is idle or `limit` has passed.
  void Run(CallGroup& group, absl::Duration limit = absl::Seconds(60)) {
    const MonoTime end = clock_.Mono() + limit;
    network_->RunUntilIdle();
    while (group.pending() > 0 && network_->NextEvent() <= end) {
      clock_.Advance(network_->NextEvent() - clock_.Mono());
      network_->RunUntilIdle();
    }
  }

  FakeClock clock_;
  std::unique_ptr<IoContext> io_;
  TestHandler handler_;
  std::unique_ptr<FakeNetwork> network_;
  std::unique_ptr<WireServer> server_;
  std::unique_ptr<Channel> channel_;
};

// The order in which 20 calls end.
std::vector<int> Order(SteppedFakeTest*, FakeNetwork& network, FakeClock& clock, IoContext& io) {
  TestHandler handler;
  auto server = *network.Listen({}, &handler);
  auto channel = network.Connect(&io, {server->port(), {}, ""});
  std::vector<int> order;
  std::vector<TestCall> calls(20);
  CallGroup group;
  for (int i = 0; i < 20; ++i) {
    calls[static_cast<size_t>(i)].on_done = [&order, i] { order.push_back(i); };
    CallSpec spec;
    spec.type = FrameType::kPing;
    spec.meta = "echo x";
    spec.deadline = clock.Mono() + absl::Seconds(60);
    channel->Start(std::move(spec), &calls[static_cast<size_t>(i)], &group);
  }
  network.RunUntilIdle();
  while (group.pending() > 0) {
    clock.Advance(network.NextEvent() - clock.Mono());
    network.RunUntilIdle();
  }
  return order;
}

TEST_F(SteppedFakeTest, SeedDecidesTheOrder) {
  std::vector<std::vector<int>> orders;
  for (const uint64_t seed : {1, 1, 2}) {
    FakeClock clock;
    FakeNetwork::Options options;
    options.seed = seed;
    options.clock = &clock;
    options.stepped = true;
    options.max_delay = absl::Milliseconds(10);
    FakeNetwork network(options);
    orders.push_back(Order(this, network, clock, *io_));
    EXPECT_EQ(orders.back().size(), 20u);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
}

TEST_F(SteppedFakeTest, DeadlineIsOfTheFakeClock) {
  Make({});
  TestCall call;
  CallGroup group;
  channel_->Start(Spec("hold", absl::Seconds(30)), &call, &group);
  const MonoTime start = clock_.Mono();
  Run(group);
  EXPECT_EQ(clock_.Mono() - start, absl::Seconds(30));
  EXPECT_EQ(call.status->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(handler_.aborts, 1);
}

TEST_F(SteppedFakeTest, LateCopiesDoNotTouchTheMemoryOfACancelledCall) {
  FakeNetwork::Options options;
  options.max_delay = absl::Milliseconds(1);
  options.max_copy_delay = absl::Milliseconds(50);
  options.payload_piece_bytes = 1'000;
  Make(options);
  std::string memory(20'000, '\0');
  PatternSink sink(memory.data(), memory.size(), 300);
  TestCall call;
  call.sink = &sink;
  call.on_done = [&] { memory.assign(memory.size(), '\xee'); };
  CallGroup group;
  sink.on_landed = [&](size_t landed) {
    if (landed == 5'000) group.Cancel();
    return absl::OkStatus();
  };
  channel_->Start(Spec("get 20000 700 1", absl::Seconds(30)), &call, &group);
  Run(group);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled);
  const auto end = clock_.Mono() + absl::Seconds(40);
  while (network_->NextEvent() <= end) {
    clock_.Advance(network_->NextEvent() - clock_.Mono());
    network_->RunUntilIdle();
  }
  EXPECT_EQ(memory, std::string(20'000, '\xee'));
  EXPECT_EQ(handler_.sources_destroyed, 1);
}

TEST_F(SteppedFakeTest, CutsEndCallsAndTheNextConnectionServes) {
  FakeNetwork::Options options;
  options.cut_one_in = 10;
  options.max_delay = absl::Milliseconds(1);
  Make(options);
  int ok = 0;
  int unavailable = 0;
  for (int i = 0; i < 200; ++i) {
    TestCall call;
    CallGroup group;
    channel_->Start(Spec("echo x", absl::Seconds(30)), &call, &group);
    Run(group);
    ASSERT_EQ(call.ends, 1);
    (call.status->ok() ? ok : unavailable) += 1;
    if (!call.status->ok()) {
      EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable) << *call.status;
    }
  }
  // Two messages a call, each cut with one chance in ten: 0.19 of the calls, 38 of 200.
  EXPECT_GT(unavailable, 15);
  EXPECT_LT(unavailable, 70);
  EXPECT_EQ(ok + unavailable, 200);
}

TEST_F(SteppedFakeTest, CutMidStreamAbortsTheServersCall) {
  FakeNetwork::Options options;
  options.payload_piece_bytes = 1'000;
  Make(options);
  std::string memory(20'000, '\0');
  PatternSink sink(memory.data(), memory.size(), 300);
  TestCall call;
  call.sink = &sink;
  CallGroup group;
  channel_->Start(Spec("get 20000 700 1", absl::Seconds(30)), &call, &group);
  while (sink.landed() < 3'000) ASSERT_TRUE(network_->Step());
  network_->CutConnections(server_->port());
  network_->RunUntilIdle();
  EXPECT_EQ(group.pending(), 0);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(handler_.aborts, 1);
  EXPECT_EQ(handler_.sent_failed, 1);
  EXPECT_EQ(handler_.sources_destroyed, 1);
  EXPECT_EQ(handler_.disconnected, 1);
}

}  // namespace
}  // namespace cistern::transport
