// What every wire owes when things go wrong, and when many things happen at once.

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/conformance/conformance.h"

namespace cistern::transport {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

absl::Duration Since(MonoTime start) { return Clock::Real().Mono() - start; }
// A sanitized build on a busy machine may add this to what is promised.
constexpr absl::Duration kSlack = absl::Milliseconds(700);

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

// --- cancel and deadlines ---

TEST_P(WireConformance, CancelEndsACallThatIsHeld) {
  Listen();
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  TestCall call;
  CallGroup group;
  CallSpec spec = MakeSpec(FrameType::kPing, "hold", kLong);
  spec.small = true;
  channel().Start(std::move(spec), &call, &group);
  handler_.Await([&] { return handler_.requests == 2; });
  const MonoTime start = Clock::Real().Mono();
  group.Cancel();
  io_->Wait(group);
  EXPECT_LT(Since(start), kCancelGrace + absl::Milliseconds(50) + kSlack);
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled);
  handler_.Await([&] { return handler_.aborts == 1; });
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  handler_.ReleaseHeld();  // goes nowhere
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
}

TEST_P(WireConformance, CancelFromAnotherThreadEndsAWait) {
  Listen();
  TestCall call;
  CallGroup group;
  channel().Start(MakeSpec(FrameType::kPing, "hold", kLong), &call, &group);
  std::thread other([&] {
    handler_.Await([&] { return handler_.requests == 1; });
    group.Cancel();
  });
  io_->Wait(group);
  other.join();
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled);
}

TEST_P(WireConformance, CancelMidStreamLeavesMemoryAlone) {
  Listen();
  constexpr size_t kBytes = 12 << 20;
  for (int round = 0; round < 3; ++round) {
    std::string memory(kBytes, '\0');
    PatternSink sink(memory.data(), kBytes, 100'000);
    TestCall call;
    call.sink = &sink;
    CallGroup group;
    bool cancelled = false;
    sink.on_landed = [&](size_t landed) {
      if (landed > (1u << 20) && !cancelled) {
        cancelled = true;
        group.Cancel();
      }
      return absl::OkStatus();
    };
    call.on_done = [&] { std::fill(memory.begin(), memory.end(), '\xee'); };
    channel().Start(MakeSpec(FrameType::kGet, absl::StrCat("get ", kBytes, " 65536 1"), kLong),
                    &call, &group);
    io_->Wait(group);
    EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled) << *call.status;
    handler_.Await([&] { return handler_.sources_destroyed == round + 1; });
    // Whatever was still on its way comes with these.
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
    }
    EXPECT_EQ(std::count(memory.begin(), memory.end(), '\xee'), std::ssize(memory));
  }
  // The connection survives a cancel, unless the machine was too busy to answer it in time.
  EXPECT_LT(channel().stats().reconnects, 3u);
}

TEST_P(WireConformance, CancelWhileSendingLetsGoOfTheSource) {
  Listen();
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> destroyed{0};
    int destroyed_at_end = -1;
    TestCall call;
    CallGroup group;
    call.after_ready = [&] {
      group.Cancel();
      return std::make_unique<PatternSource>(Pattern(2, 8'000'000), 1 << 20, &destroyed);
    };
    call.on_done = [&] { destroyed_at_end = destroyed; };
    channel().Start(MakeSpec(FrameType::kPut, "ready 8000000 65536 2", kLong), &call, &group);
    io_->Wait(group);
    EXPECT_EQ(destroyed_at_end, 1);
    EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled) << *call.status;
    handler_.Await([&] { return handler_.received_failed == round + 1; });
    EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
  }
}

TEST_P(WireConformance, DeadlineEndsACallThatIsHeld) {
  Listen();
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
  for (const bool background : {false, true}) {
    TestCall call;
    std::atomic<bool> idle{false};
    CallGroup waited;
    CallGroup driven([&] { idle = true; });
    const MonoTime start = Clock::Real().Mono();
    channel().Start(MakeSpec(FrameType::kPing, "hold", absl::Milliseconds(100)), &call,
                    background ? &driven : &waited);
    if (background) {
      handler_.Await([&] { return idle.load(); });
    } else {
      io_->Wait(waited);
    }
    EXPECT_GE(Since(start), absl::Milliseconds(100));
    EXPECT_LT(Since(start), absl::Milliseconds(250) + kSlack);
    EXPECT_EQ(call.status->code(), absl::StatusCode::kDeadlineExceeded) << *call.status;
    EXPECT_FALSE(NeverSent(*call.status));
  }
  handler_.Await([&] { return handler_.aborts == 2; });
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
}

TEST_P(WireConformance, EarlierDeadlineOfALaterCallIsKept) {
  Listen();
  TestCall patient;
  CallGroup patient_group;
  channel().Start(MakeSpec(FrameType::kPing, "hold", kLong), &patient, &patient_group);
  std::thread waiting([&] { io_->Wait(patient_group); });
  handler_.Await([&] { return handler_.requests == 1; });
  // Shares the connection that the other thread polls.
  const MonoTime start = Clock::Real().Mono();
  const auto hasty = RoundTrip(*io_, channel(), "hold", absl::Milliseconds(50), /*small=*/false);
  EXPECT_EQ(hasty.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(Since(start), absl::Milliseconds(200) + kSlack);
  handler_.ReleaseHeld();
  waiting.join();
  EXPECT_TRUE(patient.status->ok() || Contains(*patient.status, "did not answer a cancel in time"))
      << *patient.status;
}

// --- peers that go ---

TEST_P(WireConformance, ServerGoneMidPayloadEndsTheGet) {
  Listen();
  std::string memory(12 << 20, '\0');
  PatternSink sink(memory.data(), memory.size(), 65'536);
  TestCall call;
  call.sink = &sink;
  std::thread stopper;
  sink.on_landed = [&](size_t landed) {
    if (landed > (1u << 20) && !stopper.joinable()) {
      stopper = std::thread([&] { server_->Stop(); });
    }
    return absl::OkStatus();
  };
  CallGroup group;
  const MonoTime start = Clock::Real().Mono();
  channel().Start(MakeSpec(FrameType::kGet, absl::StrCat("get ", memory.size(), " 65536 1"), kLong),
                  &call, &group);
  io_->Wait(group);
  EXPECT_LT(Since(start), kLong / 2);  // the server's end, not the deadline, has ended it
  if (stopper.joinable()) stopper.join();
  // All may have been in the sockets already.
  if (!call.status->ok()) {
    EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable) << *call.status;
  }
  EXPECT_EQ(handler_.sources_destroyed, 1);
  EXPECT_EQ(handler_.connected, handler_.disconnected);
}

TEST_P(WireConformance, ClientGoneMidPayloadAbortsTheCallOnce) {
  Listen();
  TestCall call;
  std::atomic<bool> ready{false};
  call.after_ready = [&] {
    ready = true;
    return std::make_unique<PatternSource>(Pattern(2, 1'000'000), 1 << 20);
  };
  {
    CallGroup group([] {});
    // More is expected than will be sent.
    channel().Start(MakeSpec(FrameType::kPut, "ready 2000000 65536 2", kLong), &call, &group);
    handler_.Await([&] { return ready.load(); });
    channel_.reset();
    EXPECT_EQ(group.pending(), 0);
  }
  EXPECT_EQ(call.ends, 1);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled) << *call.status;
  handler_.Await([&] { return handler_.disconnected == handler_.connected; });
  EXPECT_EQ(handler_.received_failed, 1);
  EXPECT_EQ(handler_.received_ok, 0);
}

TEST_P(WireConformance, CallMayBeAnsweredAfterItsConnectionAndServerAreGone) {
  Listen();
  TestCall call;
  CallGroup group([] {});
  channel().Start(MakeSpec(FrameType::kPing, "hold", kLong), &call, &group);
  handler_.Await([&] { return handler_.held() == 1; });
  channel_.reset();
  handler_.Await([&] { return handler_.aborts == 1; });
  server_->Stop();
  server_.reset();
  handler_.ReleaseHeld();
  EXPECT_EQ(handler_.aborts, 1);
}

TEST_P(WireConformance, StopAbortsWhatIsHeld) {
  Listen();
  std::vector<TestCall> calls(5);
  CallGroup group;
  for (TestCall& call : calls) {
    CallSpec spec = MakeSpec(FrameType::kPing, "hold", kLong);
    spec.small = true;
    channel().Start(std::move(spec), &call, &group);
  }
  std::thread stopper([&] {
    handler_.Await([&] { return handler_.held() == 5; });
    server_->Stop();
  });
  io_->Wait(group);
  stopper.join();
  for (const TestCall& call : calls) {
    EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable) << *call.status;
  }
  EXPECT_EQ(handler_.aborts, 5);
}

TEST_P(WireConformance, HandlersProtocolErrorCutsTheConnection) {
  Listen();
  const auto answer = RoundTrip(*io_, channel(), "protocol", kLong);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong).ok());
}

TEST_P(WireConformance, ErrorOfTheSinkIsTheCallsStatus) {
  Listen();
  std::string memory(3'000'000, '\0');
  PatternSink sink(memory.data(), memory.size(), 65'536);
  sink.on_landed = [](size_t landed) {
    return landed < 1'000'000 ? absl::OkStatus() : absl::DataLossError("wrong digest");
  };
  TestCall call;
  call.sink = &sink;
  CallGroup group;
  channel().Start(MakeSpec(FrameType::kGet, "get 3000000 65536 1", kLong), &call, &group);
  io_->Wait(group);
  EXPECT_EQ(*call.status, absl::DataLossError("wrong digest"));
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
}

TEST_P(WireConformance, MorePayloadThanTheSinkTakesEndsTheCall) {
  Listen();
  std::string memory(1'000, '\0');
  PatternSink sink(memory.data(), memory.size(), 100);
  TestCall call;
  call.sink = &sink;
  CallGroup group;
  channel().Start(MakeSpec(FrameType::kGet, "get 1001 500 1", kLong), &call, &group);
  io_->Wait(group);
  EXPECT_EQ(call.status->code(), absl::StatusCode::kInvalidArgument) << *call.status;
}

// --- connecting ---

TEST_P(WireConformance, NobodyListeningNamesTheAddressAtTheDeadline) {
  Listen();
  const uint16_t port = server_->port();
  auto alone = Connect(client_options_);
  server_->Stop();
  const MonoTime start = Clock::Real().Mono();
  const absl::Duration deadline = wire_->time_to_be_refused();
  const auto answer = RoundTrip(*io_, *alone, "echo x", deadline);
  EXPECT_GE(Since(start), deadline);
  EXPECT_LT(Since(start), deadline + absl::Milliseconds(150) + kSlack);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  EXPECT_TRUE(Contains(answer.status(), absl::StrCat(":", port))) << answer.status();
  EXPECT_TRUE(NeverSent(answer.status()));
  EXPECT_FALSE(alone->last_error().ok());
}

TEST_P(WireConformance, FailFastEndsAtTheFirstRefusal) {
  Listen();
  auto alone = Connect(client_options_);
  server_->Stop();
  TestCall call;
  CallGroup group;
  CallSpec spec = MakeSpec(FrameType::kPing, "echo x", kLong);
  spec.fail_fast = true;
  const MonoTime start = Clock::Real().Mono();
  alone->Start(std::move(spec), &call, &group);
  io_->Wait(group);
  EXPECT_LT(Since(start), absl::Seconds(2));
  EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable) << *call.status;
  EXPECT_TRUE(NeverSent(*call.status));
}

TEST_P(WireConformance, CallsWaitForAServerThatComesUp) {
  Listen();
  const uint16_t port = server_->port();
  auto early = Connect(client_options_);
  server_->Stop();
  server_.reset();
  std::vector<TestCall> calls(10);
  CallGroup group;
  for (TestCall& call : calls) {
    early->Start(MakeSpec(FrameType::kPing, "echo x", kLong), &call, &group);
  }
  std::thread starter([&] { Listen({}, port); });
  io_->Wait(group);
  starter.join();
  for (const TestCall& call : calls) EXPECT_TRUE(call.status->ok()) << *call.status;
}

TEST_P(WireConformance, ReconnectsToARestartedServerAndReplaysPreambles) {
  Listen();
  const uint16_t port = server_->port();
  std::atomic<int> answers{0};
  std::atomic<uint64_t> last_connection{0};
  for (int i = 0; i < 3; ++i) {
    channel().AddPreamble({FrameType::kBindNamespace, absl::StrCat("echo ", i),
                           [&, i](uint64_t connection, FrameType type, std::string_view meta) {
                             EXPECT_EQ(type, FrameType::kPong);
                             EXPECT_EQ(meta, absl::StrCat(i));
                             // In order, each time anew.
                             EXPECT_EQ(answers++ % 3, i);
                             last_connection = connection;
                             return absl::OkStatus();
                           }});
  }
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  EXPECT_EQ(answers, 3);
  const uint64_t first_connection = last_connection;
  server_->Stop();
  server_.reset();
  Listen({}, port);
  // The first may have left into the dead connection: its caller repeats it.
  auto answer = RoundTrip(*io_, channel(), "echo y");
  if (!answer.ok()) {
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
    answer = RoundTrip(*io_, channel(), "echo y");
  }
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answers, 6);
  EXPECT_NE(last_connection, first_connection);
  EXPECT_EQ(channel().stats().reconnects, 1u);
  // Added while the connection is up: sent before what follows.
  channel().AddPreamble(
      {FrameType::kBindNamespace, "echo late", [&](uint64_t, FrameType, std::string_view meta) {
         EXPECT_EQ(meta, "late");
         answers = 100;
         return absl::OkStatus();
       }});
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo z").ok());
  EXPECT_EQ(answers, 100);
}

TEST_P(WireConformance, PreambleThatFailsKeepsCallsFromTheConnection) {
  Listen();
  channel().AddPreamble({FrameType::kBindNamespace, "fail not this namespace",
                         [](uint64_t, FrameType, std::string_view) { return absl::OkStatus(); }});
  const auto answer = RoundTrip(*io_, channel(), "hold", absl::Milliseconds(300));
  EXPECT_FALSE(answer.ok());
  EXPECT_TRUE(Contains(answer.status(), "not this namespace")) << answer.status();
}

TEST_P(WireConformance, WrongTokenIsRefusedByBothSides) {
  Listen();
  client_options_.identity.token = "another token, of another pool!!!";
  const MonoTime start = Clock::Real().Mono();
  const auto answer = RoundTrip(*io_, channel(), "echo x", kLong);
  EXPECT_LT(Since(start), absl::Seconds(5));  // not the deadline
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied) << answer.status();
  EXPECT_TRUE(Contains(answer.status(), "token")) << answer.status();
  EXPECT_EQ(handler_.connected, 0);
  handler_.Await([&] { return server_->stats().handshake_failures == 1; });
}

TEST_P(WireConformance, AnotherPeerThanExpectedIsRefused) {
  Listen();
  client_options_.expected_peer_id = "another-id-16byt";
  const auto answer = RoundTrip(*io_, channel(), "echo x", kLong);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  EXPECT_TRUE(Contains(answer.status(), "another store answers")) << answer.status();
}

// --- limits ---

TEST_P(WireConformance, RequestBeyondThePeersMetaLimitIsRefusedHere) {
  ServerLimits limits;
  limits.max_meta_bytes = 1'000;
  Listen(limits);
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo " + std::string(900, 'x')).ok());
  const auto answer = RoundTrip(*io_, channel(), "echo " + std::string(1'000, 'x'));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument) << answer.status();
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  EXPECT_EQ(handler_.connected, 1);
}

TEST_P(WireConformance, LongMetaGoesThrough) {
  Listen();
  const std::string text((1 << 20) - 5, 'm');
  const auto answer = RoundTrip(*io_, channel(), "echo " + text);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, text);
}

TEST_P(WireConformance, ConnectionsBeyondTheLimitAreClosed) {
  ServerLimits limits;
  limits.max_connections = 2;
  Listen(limits);
  auto first = Connect(client_options_);
  auto second = Connect(client_options_);
  auto third = Connect(client_options_);
  EXPECT_TRUE(RoundTrip(*io_, *first, "echo x").ok());
  EXPECT_TRUE(RoundTrip(*io_, *second, "echo x").ok());
  EXPECT_EQ(server_->stats().connections, 2u);
  EXPECT_EQ(RoundTrip(*io_, *third, "echo x", absl::Milliseconds(100)).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_GE(server_->stats().refused, 1u);
  first.reset();
  EXPECT_TRUE(RoundTrip(*io_, *third, "echo x", kLong).ok());
}

TEST_P(WireConformance, CallsBeyondTheLimitWaitTheirTurn) {
  ServerLimits limits;
  limits.max_calls_per_connection = 3;
  Listen(limits);
  std::vector<TestCall> calls(100);
  CallGroup group;
  for (TestCall& call : calls) {
    CallSpec spec = MakeSpec(FrameType::kPing, "thread x", kLong);
    spec.small = true;
    channel().Start(std::move(spec), &call, &group);
  }
  io_->Wait(group);
  for (const TestCall& call : calls) EXPECT_TRUE(call.status->ok()) << *call.status;
}

TEST_P(WireConformance, SlowReaderHoldsUpNobodyElse) {
  if (!wire_->has_backpressure()) GTEST_SKIP() << "this wire has no socket buffers";
  Listen();
  constexpr size_t kBytes = 24 << 20;
  std::string memory(kBytes, '\0');
  PatternSink sink(memory.data(), kBytes, 1 << 20);
  TestCall slow;
  slow.sink = &sink;
  CallGroup group;
  auto other = Connect(client_options_);
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x", kLong, /*small=*/false).ok());
  // Nobody waits for it: its answer fills the sockets and stops there.
  channel().Start(MakeSpec(FrameType::kGet, absl::StrCat("get ", kBytes, " 65536 1"), kLong), &slow,
                  &group);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(RoundTrip(*io_, *other, "echo x", kLong, i % 2 == 0).ok());
  }
  EXPECT_EQ(handler_.sources_destroyed, 0);
  EXPECT_FALSE(slow.status.has_value());
  io_->Wait(group);
  EXPECT_TRUE(slow.status->ok()) << *slow.status;
  EXPECT_TRUE(memory == Pattern(1, kBytes));
}

TEST_P(WireConformance, SmallCallsPassLongStreams) {
  Listen();
  client_options_.connections = 1;
  constexpr size_t kBytes = 12 << 20;
  std::string memory(kBytes, '\0');
  PatternSink sink(memory.data(), kBytes, 1 << 20);
  TestCall large;
  large.sink = &sink;
  TestCall small;
  size_t landed_when_small_ended = 0;
  small.on_done = [&] { landed_when_small_ended = sink.landed(); };
  CallGroup group;
  // On one connection, begun in this order.
  channel().Start(MakeSpec(FrameType::kGet, absl::StrCat("get ", kBytes, " 65536 1"), kLong),
                  &large, &group);
  channel().Start(MakeSpec(FrameType::kPing, "echo x", kLong), &small, &group);
  io_->Wait(group);
  EXPECT_TRUE(large.status->ok()) << *large.status;
  EXPECT_TRUE(small.status->ok()) << *small.status;
  EXPECT_LT(landed_when_small_ended, kBytes);
}

// --- many ---

TEST_P(WireConformance, TwoHundredIdleConnectionsStayUsable) {
  Listen();
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 200; ++i) {
    channels.push_back(Connect(client_options_));
    ASSERT_TRUE(RoundTrip(*io_, *channels.back(), "echo x").ok());
  }
  EXPECT_EQ(server_->stats().connections, 200u);
  for (const auto& channel : channels) ASSERT_TRUE(RoundTrip(*io_, *channel, "echo y").ok());
  EXPECT_EQ(handler_.connected, 200);
  channels.clear();
  handler_.Await([&] { return server_->stats().connections == 0; });
  EXPECT_EQ(handler_.disconnected, 200);
}

TEST_P(WireConformance, ThreadsMayWaitForOneGroupTogether) {
  Listen();
  for (int round = 0; round < 20; ++round) {
    std::vector<TestCall> calls(20);
    CallGroup group;
    for (TestCall& call : calls) {
      channel().Start(MakeSpec(FrameType::kPing, "thread x", kLong), &call, &group);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { io_->Wait(group); });
    for (std::thread& thread : threads) thread.join();
    for (const TestCall& call : calls) {
      ASSERT_TRUE(call.status.has_value());
      EXPECT_TRUE(call.status->ok()) << *call.status;
    }
  }
}

bool EndedByAnothersCancel(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
         Contains(status, "did not answer a cancel in time");
}

// One thread's share of the storm: gets, puts, echoes, cancels and short deadlines on shared
// connections; every call ends once, and what ends well is right.
void Storm(IoContext& io, Channel& channel, unsigned seed, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    seed = seed * 1664525u + 1013904223u;
    const unsigned kind = (seed >> 16) % 6;
    const size_t bytes = 1 + (seed >> 8) % 150'000;
    const uint32_t pattern = seed % 50;
    std::string memory(bytes, '\0');
    PatternSink sink(memory.data(), bytes, 1 + seed % 30'000);
    TestCall call;
    TestCall second;
    call.sink = &sink;
    CallGroup waited;
    CallGroup driven([] {});
    CallGroup& group = kind == 5 ? driven : waited;
    std::string meta = absl::StrCat("echo ", round);
    if (kind == 0 || kind == 5) meta = absl::StrCat("get ", bytes, " 20000 ", pattern);
    if (kind == 1) meta = absl::StrCat("ready ", bytes, " 20000 ", pattern);
    if (kind == 2) meta = "hold";
    if (kind == 3) meta = absl::StrCat("thread ", round);
    call.after_ready = [&] {
      return std::make_unique<PatternSource>(Pattern(pattern, bytes), 10'000);
    };
    CallSpec spec =
        MakeSpec(FrameType::kGet, meta, kind == 2 && seed % 2 == 0 ? absl::Milliseconds(5) : kLong);
    spec.small = seed % 3 == 0;
    spec.expected_bytes = bytes;
    channel.Start(std::move(spec), &call, &group);
    channel.Start(MakeSpec(FrameType::kPing, "echo second", kLong), &second, &group);
    if (kind == 2) group.Cancel();
    io.Wait(group);
    ASSERT_EQ(call.ends, 1);
    ASSERT_EQ(second.ends, 1);
    if (kind == 2) {
      EXPECT_FALSE(call.status->ok());
      continue;
    }
    // Another thread's cancel costs the connection when the machine is too busy to answer it.
    if (EndedByAnothersCancel(*call.status) || EndedByAnothersCancel(*second.status)) continue;
    EXPECT_TRUE(call.status->ok()) << *call.status;
    EXPECT_TRUE(second.status->ok()) << *second.status;
    if (kind == 0 || kind == 5) {
      EXPECT_TRUE(memory == Pattern(pattern, bytes));
    } else if (kind == 1) {
      EXPECT_EQ(call.meta, "right");
    }
  }
}

TEST_P(WireConformance, ManyThreadsShareOneChannel) {
  Listen();
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 6; ++i) {
    threads.emplace_back([this, i] { Storm(*io_, *channel_, 1000 + i, 60); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
}

TEST_P(WireConformance, ServerStoppedUnderLoadEndsEveryCallOnce) {
  Listen();
  ASSERT_TRUE(RoundTrip(*io_, channel(), "echo x").ok());
  std::atomic<bool> stopped{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stopped) {
        std::string memory(50'000, '\0');
        PatternSink sink(memory.data(), memory.size(), 7'000);
        TestCall get;
        TestCall echo;
        get.sink = &sink;
        CallGroup group;
        channel_->Start(MakeSpec(FrameType::kGet, "get 50000 9000 5", absl::Milliseconds(200)),
                        &get, &group);
        channel_->Start(MakeSpec(FrameType::kPing, "thread x", absl::Milliseconds(200)), &echo,
                        &group);
        io_->Wait(group);
        ASSERT_EQ(get.ends, 1);
        ASSERT_EQ(echo.ends, 1);
        if (get.status->ok()) {
          EXPECT_TRUE(memory == Pattern(5, 50'000));
        }
      }
    });
  }
  handler_.Await([&] { return handler_.requests > 100; });
  server_->Stop();
  stopped = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(handler_.connected, handler_.disconnected);
}

}  // namespace
}  // namespace cistern::transport
