#include "transport/conformance/conformance.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/handshake.h"

namespace cistern::transport {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WireConformance);

WireConformance::WireConformance() : wire_(GetParam()()) {
  auto io = IoContext::Create({});
  EXPECT_TRUE(io.ok()) << io.status();
  io_ = *std::move(io);
  server_options_.identity.kind = wire::PEER_STORE;
  server_options_.identity.token = "a token of more than thirty-two bytes";
  server_options_.identity.pool_id = PoolId::FromBytes("pool-id-16-bytes");
  server_options_.identity.peer_id = "store-id-16bytes";
  server_options_.identity.incarnation = 77;
  client_options_.identity.kind = wire::PEER_CLIENT;
  client_options_.identity.token = server_options_.identity.token;
}

WireConformance::~WireConformance() {
  channel_.reset();
  if (server_ != nullptr) server_->Stop();
}

void WireConformance::Listen(ServerLimits limits, uint16_t port) {
  server_options_.limits = limits;
  server_options_.port = port;
  auto server = wire_->Listen(server_options_, &handler_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

std::unique_ptr<Channel> WireConformance::Connect(const ConformanceWire::Client& options) {
  return wire_->Connect(io_.get(), server_->port(), options);
}

Channel& WireConformance::channel() {
  if (channel_ == nullptr) channel_ = Connect(client_options_);
  return *channel_;
}

namespace {

// --- small calls ---

TEST_P(WireConformance, EchoesMeta) {
  Listen();
  const auto answer = RoundTrip(*io_, channel(), "echo hello");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "hello");
  EXPECT_EQ(channel().peer().peer_id, "store-id-16bytes");
  EXPECT_EQ(channel().peer().incarnation, 77u);
  EXPECT_EQ(channel().peer().kind, wire::PEER_STORE);
  EXPECT_EQ(channel().peer().max_keys, 32'768u);
  EXPECT_TRUE(channel().last_error().ok());
}

TEST_P(WireConformance, AnswersFromAnotherThread) {
  Listen();
  for (int i = 0; i < 20; ++i) {
    const auto answer = RoundTrip(*io_, channel(), absl::StrCat("thread ", i));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, absl::StrCat(i));
  }
}

TEST_P(WireConformance, ErrorReplyBecomesTheStatus) {
  Listen();
  const auto answer = RoundTrip(*io_, channel(), "fail no such chunk");
  EXPECT_EQ(answer.status(), absl::NotFoundError("no such chunk"));
  EXPECT_FALSE(NeverSent(answer.status()));
}

TEST_P(WireConformance, DroppedRequestIsAnsweredInternal) {
  Listen();
  EXPECT_EQ(RoundTrip(*io_, channel(), "drop").status().code(), absl::StatusCode::kInternal);
}

TEST_P(WireConformance, ManyCallsAtOnceAllEndWithTheirOwnAnswer) {
  Listen();
  constexpr int kCalls = 300;
  std::vector<TestCall> calls(kCalls);
  CallGroup group;
  for (int i = 0; i < kCalls; ++i) {
    CallSpec spec = MakeSpec(FrameType::kPing, absl::StrCat(i % 3 == 0 ? "thread " : "echo ", i),
                             absl::Seconds(20));
    spec.small = i % 2 == 0;
    channel().Start(std::move(spec), &calls[static_cast<size_t>(i)], &group);
  }
  io_->Wait(group);
  for (int i = 0; i < kCalls; ++i) {
    const TestCall& call = calls[static_cast<size_t>(i)];
    ASSERT_EQ(call.ends, 1);
    EXPECT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.meta, absl::StrCat(i));
  }
}

TEST_P(WireConformance, CallWithoutDeadlineIsRefused) {
  Listen();
  TestCall call;
  CallGroup group;
  CallSpec spec;
  spec.type = FrameType::kPing;
  spec.meta = "echo x";
  channel().Start(std::move(spec), &call, &group);
  io_->Wait(group);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(WireConformance, CallsMayBeStartedFromCallbacks) {
  Listen();
  std::vector<TestCall> calls(50);
  CallGroup group;
  size_t next = 1;
  for (auto& call : calls) {
    call.on_done = [&] {
      if (next == calls.size()) return;
      TestCall& following = calls[next++];
      channel().Start(MakeSpec(FrameType::kPing, "echo x", absl::Seconds(20)), &following, &group);
    };
  }
  channel().Start(MakeSpec(FrameType::kPing, "echo x", absl::Seconds(20)), &calls[0], &group);
  io_->Wait(group);
  for (const auto& call : calls) {
    ASSERT_EQ(call.ends, 1);
    EXPECT_TRUE(call.status->ok()) << *call.status;
  }
}

TEST_P(WireConformance, GroupWithOnIdleNeedsNobodyToWait) {
  Listen();
  struct Signal {
    Mutex mutex;
    CondVar changed;
    int idle = 0;
  };
  auto signal = std::make_shared<Signal>();
  for (int round = 1; round <= 10; ++round) {
    TestCall small;
    TestCall large;
    std::string memory(300'000, '\0');
    PatternSink sink(memory.data(), memory.size(), 4096);
    large.sink = &sink;
    CallGroup group([signal] {
      MutexLock lock(signal->mutex);
      ++signal->idle;
      signal->changed.NotifyAll();
    });
    channel().Start(MakeSpec(FrameType::kGet, "get 300000 5000 9", absl::Seconds(20)), &large,
                    &group);
    channel().Start(MakeSpec(FrameType::kPing, "thread x", absl::Seconds(20)), &small, &group);
    const auto end = Clock::Real().Mono() + absl::Seconds(10);
    // Either may end before the other has started: once or twice.
    for (;;) {
      MutexLock lock(signal->mutex);
      if (signal->idle > 0 && group.pending() == 0) break;
      ASSERT_LT(Clock::Real().Mono(), end);
      signal->changed.WaitFor(signal->mutex, absl::Milliseconds(20));
    }
    EXPECT_TRUE(large.status->ok()) << *large.status;
    EXPECT_TRUE(small.status->ok()) << *small.status;
    EXPECT_EQ(memory, Pattern(9, 300'000));
    MutexLock lock(signal->mutex);
    signal->idle = 0;
  }
}

TEST_P(WireConformance, WaitTakesOverFromTheIoThread) {
  Listen();
  for (int i = 0; i < 30; ++i) {
    TestCall call;
    std::string memory(200'000, '\0');
    PatternSink sink(memory.data(), memory.size(), 100'000);
    call.sink = &sink;
    CallGroup group([] {});
    channel().Start(MakeSpec(FrameType::kGet, "get 200000 5000 4", absl::Seconds(20)), &call,
                    &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status.has_value());
    EXPECT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(memory, Pattern(4, memory.size()));
  }
}

// --- payload ---

struct Shape {
  uint64_t bytes;
  size_t source_piece;
  size_t sink_piece;
};
constexpr Shape kShapes[] = {
    {0, 1, 1},
    {1, 1, 1},
    {5'000, 1, 1},
    {70'001, 7, 4'093},
    {200'000, 4'096, 3},
    {1 << 20, 65'536, 1 << 20},
    {(1 << 20) + 1, 1 << 20, 12'345},
    {9'000'000, 1 << 18, 1 << 17},
};

TEST_P(WireConformance, GetScattersIntoBuffersOfAnyShape) {
  Listen();
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(
        absl::StrCat(shape.bytes, " bytes, ", shape.source_piece, " to ", shape.sink_piece));
    TestCall call;
    std::string memory(shape.bytes, '\0');
    PatternSink sink(memory.data(), memory.size(), shape.sink_piece);
    call.sink = &sink;
    CallGroup group;
    channel().Start(
        MakeSpec(FrameType::kGet, absl::StrCat("get ", shape.bytes, " ", shape.source_piece, " 3"),
                 absl::Seconds(30)),
        &call, &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.frames.front(), FrameType::kGetHead);
    EXPECT_EQ(call.frames.back(), FrameType::kGetDone);
    EXPECT_EQ(call.payload_bytes, shape.bytes);
    EXPECT_TRUE(memory == Pattern(3, shape.bytes));
  }
  handler_.Await([&] { return handler_.sources_destroyed == std::ssize(kShapes); });
  EXPECT_EQ(handler_.sent_ok, std::ssize(kShapes));
}

TEST_P(WireConformance, ShortAnswerCarriesItsPayload) {
  Listen();
  for (const uint64_t bytes : {0, 1, 4'096, 100'000, 1 << 20}) {
    TestCall call;
    std::string memory(bytes, '\0');
    PatternSink sink(memory.data(), bytes, 10'000);
    call.sink = &sink;
    CallGroup group;
    channel().Start(
        MakeSpec(FrameType::kGet, absl::StrCat("short ", bytes, " 999 8"), absl::Seconds(20)),
        &call, &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.frames, std::vector<FrameType>{FrameType::kGetHead});
    EXPECT_TRUE(memory == Pattern(8, bytes));
  }
}

TEST_P(WireConformance, LongFinalAnswerEndsWithItsLastDataFrame) {
  Listen();
  constexpr uint64_t kBytes = (3 << 20) + 5;
  TestCall call;
  std::string memory(kBytes, '\0');
  PatternSink sink(memory.data(), kBytes, 1 << 20);
  call.sink = &sink;
  CallGroup group;
  channel().Start(
      MakeSpec(FrameType::kGet, absl::StrCat("short ", kBytes, " 100000 8"), absl::Seconds(20)),
      &call, &group);
  io_->Wait(group);
  ASSERT_TRUE(call.status->ok()) << *call.status;
  EXPECT_TRUE(memory == Pattern(8, kBytes));
}

TEST_P(WireConformance, UnwantedAnswerPayloadIsDiscarded) {
  Listen();
  EXPECT_TRUE(RoundTrip(*io_, channel(), "get 3000000 100000 1").ok());
  EXPECT_TRUE(RoundTrip(*io_, channel(), "short 300000 100000 1").ok());
  EXPECT_EQ(*RoundTrip(*io_, channel(), "echo still there"), "still there");
}

TEST_P(WireConformance, PutInLineArrives) {
  Listen();
  for (const Shape& shape : kShapes) {
    if (shape.bytes > kInlinePayloadBytes) continue;
    for (const char* verb : {"put", "twice"}) {
      SCOPED_TRACE(absl::StrCat(verb, " ", shape.bytes));
      std::atomic<int> destroyed{0};
      TestCall call;
      CallGroup group;
      CallSpec spec = MakeSpec(FrameType::kPut,
                               absl::StrCat(verb, " ", shape.bytes, " ", shape.sink_piece, " 6"),
                               absl::Seconds(30));
      spec.payload =
          std::make_unique<PatternSource>(Pattern(6, shape.bytes), shape.source_piece, &destroyed);
      channel().Start(std::move(spec), &call, &group);
      io_->Wait(group);
      ASSERT_TRUE(call.status->ok()) << *call.status;
      EXPECT_EQ(call.meta, "right");
      EXPECT_EQ(destroyed, 1);
    }
  }
}

TEST_P(WireConformance, PutAfterReadyArrives) {
  Listen();
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.bytes);
    TestCall call;
    call.after_ready = [&] {
      return std::make_unique<PatternSource>(Pattern(2, shape.bytes), shape.source_piece);
    };
    CallGroup group;
    channel().Start(
        MakeSpec(FrameType::kPut, absl::StrCat("ready ", shape.bytes, " ", shape.sink_piece, " 2"),
                 absl::Seconds(30)),
        &call, &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.meta, "right");
    EXPECT_EQ(call.frames, (std::vector<FrameType>{FrameType::kPutReady, FrameType::kPutDone}));
  }
}

TEST_P(WireConformance, InLinePayloadNobodyTakesIsDiscarded) {
  Listen();
  for (int i = 0; i < 5; ++i) {
    TestCall call;
    CallGroup group;
    CallSpec spec = MakeSpec(FrameType::kPut, "ignore", absl::Seconds(20));
    spec.payload = std::make_unique<PatternSource>(Pattern(1, 900'000), 100'000);
    channel().Start(std::move(spec), &call, &group);
    io_->Wait(group);
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.meta, "ignored");
  }
}

TEST_P(WireConformance, ServerMayFailWhilePayloadIsOnItsWay) {
  Listen();
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> destroyed{0};
    TestCall call;
    call.after_ready = [&] {
      return std::make_unique<PatternSource>(Pattern(2, 20'000'000), 1 << 20, &destroyed);
    };
    CallGroup group;
    channel().Start(MakeSpec(FrameType::kPut, "early", absl::Seconds(20)), &call, &group);
    io_->Wait(group);
    EXPECT_EQ(call.status->code(), absl::StatusCode::kResourceExhausted) << *call.status;
    EXPECT_EQ(destroyed, 1);
    EXPECT_EQ(*RoundTrip(*io_, channel(), "echo x", absl::Seconds(20), /*small=*/false), "x");
  }
}

}  // namespace
}  // namespace cistern::transport
