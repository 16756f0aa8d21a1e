// A TCP server against peers that break the protocol, go silent, or ask for too much.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "proto/handshake.pb.h"
#include "transport/conformance/test_peer.h"
#include "transport/stream/raw_peer.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(100);

class TcpServerTest : public testing::Test {
 protected:
  TcpServerTest() {
    options_.identity.token = "a token of more than thirty-two bytes";
    options_.identity.peer_id = "store-id-16bytes";
    client_.token = options_.identity.token;
  }
  void Listen() {
    auto server = ListenTcp(options_, &handler_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void AwaitNoConnections() {
    handler_.Await([&] { return server_->stats().connections == 0; });
  }
  // The server serves as if nothing had been.
  void ExpectServing() {
    RawPeer peer(server_->port());
    ASSERT_TRUE(peer.Handshake(client_));
    peer.SendFrame(FrameType::kPing, 1, "echo alive");
    const auto answer = peer.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->meta, "alive");
  }

  TcpServerOptions options_;
  LocalIdentity client_;
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
};

// --- before the handshake ---

TEST_F(TcpServerTest, GarbageCostsOneConnection) {
  Listen();
  RawPeer peer(server_->port());
  peer.Send(std::string(200, 'G'));
  EXPECT_TRUE(peer.WaitClosed());
  AwaitNoConnections();
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
  EXPECT_EQ(server_->stats().handshake_failures, 1u);
  EXPECT_EQ(handler_.connected, 0);
  ExpectServing();
}

TEST_F(TcpServerTest, WrongMajorVersionIsCut) {
  Listen();
  RawPeer peer(server_->port());
  std::string bytes = RawFrame(FrameType::kHello, 0, "", "");
  bytes[4] = 2;
  peer.Send(bytes);
  EXPECT_TRUE(peer.WaitClosed());
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
}

TEST_F(TcpServerTest, RequestBeforeTheHandshakeIsCut) {
  Listen();
  RawPeer peer(server_->port());
  peer.SendFrame(FrameType::kPing, 1, "echo x");
  EXPECT_TRUE(peer.WaitClosed());
  EXPECT_EQ(handler_.requests, 0);
}

TEST_F(TcpServerTest, CallerWithoutTheTokenIsToldAndCut) {
  Listen();
  RawPeer peer(server_->port());
  client_.token = "";
  EXPECT_FALSE(peer.Handshake(client_));
  RawPeer liar(server_->port());
  // Says Auth without the proof.
  wire::Hello hello;
  hello.set_major_min(1);
  hello.set_major_max(1);
  hello.set_nonce(std::string(16, 'n'));
  liar.SendFrame(FrameType::kHello, 0, hello.SerializeAsString());
  ASSERT_TRUE(liar.Receive().has_value());
  wire::Auth auth;
  auth.set_proof(std::string(32, 'p'));
  liar.SendFrame(FrameType::kAuth, 0, auth.SerializeAsString());
  const auto answer = liar.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.type, FrameType::kError);
  EXPECT_TRUE(liar.WaitClosed());
  EXPECT_EQ(handler_.connected, 0);
}

TEST_F(TcpServerTest, SilenceEndsAtTheHandshakeTimeout) {
  options_.limits.handshake_timeout = kShort;
  Listen();
  RawPeer silent(server_->port());
  RawPeer half(server_->port());
  half.Send(RawFrame(FrameType::kHello, 0, "", "").substr(0, 10));
  EXPECT_TRUE(silent.WaitClosed());
  EXPECT_TRUE(half.WaitClosed());
  AwaitNoConnections();
  EXPECT_EQ(server_->stats().handshake_failures, 2u);
}

TEST_F(TcpServerTest, SlowHandshakeIsNotProlongedByEachByte) {
  options_.limits.handshake_timeout = kShort;
  Listen();
  RawPeer loris(server_->port());
  const std::string bytes = RawFrame(FrameType::kHello, 0, std::string(500, 'x'), "");
  size_t sent = 0;
  // A byte every 10 ms would go on for 5 s.
  while (sent < bytes.size() && loris.Send(bytes.substr(sent, 1)) &&
         !loris.WaitClosed(absl::Milliseconds(10))) {
    ++sent;
  }
  EXPECT_LT(sent, bytes.size() / 2);
}

// --- after the handshake ---

TEST_F(TcpServerTest, HalfAFrameIsCutAtTheStallTimeout) {
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer half_header(server_->port());
  RawPeer half_payload(server_->port());
  ASSERT_TRUE(half_header.Handshake(client_));
  ASSERT_TRUE(half_payload.Handshake(client_));
  half_header.Send(RawFrame(FrameType::kPing, 1, "echo", "").substr(0, 20));
  half_payload.Send(
      RawFrame(FrameType::kPut, 1, "put 1000 100 1", std::string(1000, 'x')).substr(0, 600));
  EXPECT_TRUE(half_header.WaitClosed());
  EXPECT_TRUE(half_payload.WaitClosed());
  AwaitNoConnections();
  EXPECT_EQ(server_->stats().stalled, 2u);
  EXPECT_EQ(handler_.received_failed, 1);
  ExpectServing();
}

TEST_F(TcpServerTest, PayloadThatNeverComesIsCutAtTheStallTimeout) {
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kPut, 1, "ready 1000 100 1");
  EXPECT_TRUE(peer.WaitClosed());
  AwaitNoConnections();
  EXPECT_EQ(server_->stats().stalled, 1u);
  EXPECT_EQ(handler_.received_failed, 1);
}

TEST_F(TcpServerTest, ReaderThatStopsIsCutAtTheStallTimeout) {
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer peer(server_->port(), 4096);
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kGet, 1, "get 30000000 100000 1");
  handler_.Await([&] { return handler_.sent_failed == 1; });
  EXPECT_EQ(handler_.sources_destroyed, 1);
  EXPECT_EQ(server_->stats().stalled, 1u);
  AwaitNoConnections();
}

// One byte now and then is progress; without an end to it a put would hold its memory for ever.
TEST_F(TcpServerTest, PayloadThatDripsIsCutWhenItsDeadlineIsLongOver) {
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kPut, 1, "until 50 ready 100000 100 1");
  peer.Send(RawFrame(FrameType::kData, 1, "", std::string(100'000, 'x')).substr(0, 32));
  bool closed = false;
  for (int i = 0; i < 1'000 && !closed; ++i) {
    closed = !peer.Send("x") || peer.WaitClosed(absl::Milliseconds(5));
  }
  EXPECT_TRUE(closed);
  AwaitNoConnections();
  EXPECT_EQ(server_->stats().stalled, 1u);
  EXPECT_EQ(handler_.received_failed, 1);
}

TEST_F(TcpServerTest, ReaderThatDripsIsCutWhenItsDeadlineIsLongOver) {
  options_.limits.stall_timeout = absl::Milliseconds(500);
  Listen();
  RawPeer peer(server_->port(), 4096);
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kGet, 1, "until 50 get 100000000 100000 1");
  RawPeer pace(server_->port());
  ASSERT_TRUE(pace.Handshake(client_));
  for (int i = 0; i < 1'000 && peer.Drain(100'000); ++i) pace.WaitClosed(absl::Milliseconds(5));
  handler_.Await([&] { return handler_.sent_failed + handler_.sent_ok == 1; });
  EXPECT_EQ(handler_.sent_failed, 1);
  EXPECT_EQ(handler_.sources_destroyed, 1);
  EXPECT_EQ(server_->stats().stalled, 1u);
}

TEST_F(TcpServerTest, DeadlineThatIsOverHarmsNoCallThatMovesNothing) {
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kPing, 1, "until 1 hold");
  EXPECT_FALSE(peer.WaitClosed(4 * kShort));
  handler_.ReleaseHeld();
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "released");
}

TEST_F(TcpServerTest, IdleConnectionsAreClosedAndBusyOnesAreNot) {
  options_.limits.idle_timeout = kShort;
  Listen();
  RawPeer busy(server_->port());
  RawPeer idle(server_->port());
  ASSERT_TRUE(busy.Handshake(client_));
  busy.SendFrame(FrameType::kPing, 1, "hold");
  ASSERT_TRUE(idle.Handshake(client_));
  EXPECT_TRUE(idle.WaitClosed());
  handler_.Await([&] { return server_->stats().connections == 1; });
  handler_.ReleaseHeld();
  const auto answer = busy.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "released");
  EXPECT_EQ(server_->stats().stalled, 0u);
}

TEST_F(TcpServerTest, GiantSizesAreCutAtTheHeader) {
  Listen();
  for (const auto& [offset, value] : {std::pair<size_t, uint8_t>{19, 0xff}, {31, 0x7f}}) {
    RawPeer peer(server_->port());
    ASSERT_TRUE(peer.Handshake(client_));
    std::string bytes = RawFrame(FrameType::kPut, 1, "", "");
    bytes[offset] = static_cast<char>(value);
    peer.Send(bytes);
    EXPECT_TRUE(peer.WaitClosed());
  }
  EXPECT_EQ(server_->stats().protocol_errors, 2u);
  EXPECT_EQ(handler_.requests, 0);
}

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(TcpServerTest, AnnouncedMetasTakeNoMemory) {
  Listen();
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(std::make_unique<RawPeer>(server_->port()));
    ASSERT_TRUE(peers.back()->Handshake(client_));
  }
  const std::string bytes = RawFrame(FrameType::kPut, 1, std::string(1 << 20, 'm'), "");
  const size_t before = ResidentBytes();
  for (const auto& peer : peers) peer->Send(bytes.substr(0, 1000));
  ExpectServing();
  // 100 MiB announced.
  EXPECT_LT(ResidentBytes(), before + (20 << 20));
}

TEST_F(TcpServerTest, WrongChecksumIsCut) {
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  std::string bytes = RawFrame(FrameType::kPing, 1, "echo x", "");
  bytes.back() ^= 1;
  peer.Send(bytes);
  EXPECT_TRUE(peer.WaitClosed());
  EXPECT_EQ(handler_.requests, 0);
  EXPECT_EQ(server_->stats().protocol_errors, 1u);
}

TEST_F(TcpServerTest, RequestIdInUseIsCut) {
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kPing, 1, "hold");
  peer.SendFrame(FrameType::kPing, 1, "echo x");
  EXPECT_TRUE(peer.WaitClosed());
  AwaitNoConnections();
  EXPECT_EQ(handler_.aborts, 1);
}

TEST_F(TcpServerTest, HandshakeFramesOutOfPlaceAreCut) {
  Listen();
  for (const FrameType type : {FrameType::kHello, FrameType::kAuth, FrameType::kCancelDone}) {
    RawPeer peer(server_->port());
    ASSERT_TRUE(peer.Handshake(client_));
    peer.SendFrame(type, 1, "");
    EXPECT_TRUE(peer.WaitClosed());
  }
}

TEST_F(TcpServerTest, DataAndCancelOfUnknownCallsAreHarmless) {
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kData, 77, "", std::string(100'000, 'd'));
  peer.SendFrame(FrameType::kCancel, 77, "");
  const auto done = peer.Receive();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->header.type, FrameType::kCancelDone);
  EXPECT_EQ(done->header.request_id, 77u);
  wire::CancelDone meta;
  ASSERT_TRUE(meta.ParseFromString(done->meta));
  EXPECT_FALSE(meta.found());
  peer.SendFrame(FrameType::kPing, 78, "echo x");
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "x");
}

TEST_F(TcpServerTest, ManyCancelsOfNothingStayBounded) {
  options_.limits.max_calls_per_connection = 10;
  options_.limits.stall_timeout = kShort;
  Listen();
  RawPeer peer(server_->port(), 4096);
  ASSERT_TRUE(peer.Handshake(client_));
  std::string cancels;
  for (uint64_t id = 1; id <= 1'000; ++id) cancels += RawFrame(FrameType::kCancel, id, "", "");
  const size_t before = ResidentBytes();
  // Never reads an answer: the server stops reading, then the send blocks or fails.
  for (int i = 0; i < 20 && !peer.WaitClosed(absl::Milliseconds(1)); ++i) peer.Send(cancels);
  EXPECT_LT(ResidentBytes(), before + (20 << 20));
  ExpectServing();
}

TEST_F(TcpServerTest, RequestsBeyondTheLimitWaitUnlessPayloadIsBehindThem) {
  options_.limits.max_calls_per_connection = 2;
  Listen();
  RawPeer peer(server_->port());
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kPut, 1, "ready 5 5 1");
  peer.SendFrame(FrameType::kPing, 2, "hold");
  // Held back, this would keep the payload of call 1 from being read.
  peer.SendFrame(FrameType::kPing, 3, "echo x");
  peer.SendFrame(FrameType::kData, 1, "", Pattern(1, 5));
  bool refused = false;
  bool right = false;
  for (int i = 0; i < 3; ++i) {
    const auto frame = peer.Receive();
    ASSERT_TRUE(frame.has_value());
    if (frame->header.request_id == 3) refused = frame->header.type == FrameType::kError;
    if (frame->header.request_id == 1 && frame->meta == "right") right = true;
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(right);
}

// --- listening ---

// Answers every request with a stream that holds a megabyte of memory beside its bytes.
class HeavyHandler final : public RequestHandler {
 public:
  void OnRequest(std::unique_ptr<ServerCall> call) override {
    ++requests;
    call->Reply(FrameType::kGetHead, "", /*final=*/false, std::make_unique<HeavySource>());
    call->Reply(FrameType::kGetDone, "", /*final=*/true);
  }
  void OnConnected(ServerConnection& c) override { connection = &c; }
  std::atomic<int> requests{0};
  std::atomic<ServerConnection*> connection{nullptr};

 private:
  class HeavySource final : public PayloadSource {
   public:
    uint64_t remaining() const override { return left_; }
    void NextPieces(size_t max_bytes, size_t, std::vector<iovec>* out) override {
      static char bytes[4096];
      const size_t n = std::min({max_bytes, sizeof(bytes), static_cast<size_t>(left_)});
      out->push_back({bytes, n});
      left_ -= n;
    }
    size_t memory_bytes() const override { return 1 << 20; }

   private:
    uint64_t left_ = 8 << 20;
  };
};

TEST_F(TcpServerTest, UnreadAnswersTakeBoundedMemory) {
  options_.limits.max_buffered_bytes_per_connection = 4 << 20;
  HeavyHandler heavy;
  const auto server = ListenTcp(options_, &heavy);
  ASSERT_TRUE(server.ok()) << server.status();
  RawPeer deaf((*server)->port(), 4096);
  ASSERT_TRUE(deaf.Handshake(client_));
  for (uint64_t id = 1; id <= 100; ++id) deaf.SendFrame(FrameType::kGet, id, "");
  handler_.Await([&] { return heavy.requests >= 4; });
  // What was sent before is seen before these are served, whichever loop has it.
  for (int i = 0; i < 50; ++i) {
    RawPeer other((*server)->port());
    ASSERT_TRUE(other.Handshake(client_));
  }
  EXPECT_EQ(heavy.requests, 4);
  // To one that reads they are all given.
  RawPeer reader((*server)->port());
  ASSERT_TRUE(reader.Handshake(client_));
  for (uint64_t id = 1; id <= 8; ++id) reader.SendFrame(FrameType::kGet, id, "");
  int done = 0;
  while (done < 8) {
    const auto frame = reader.Receive();
    ASSERT_TRUE(frame.has_value());
    done += frame->header.type == FrameType::kGetDone ? 1 : 0;
  }
  EXPECT_EQ(heavy.requests, 12);
}

TEST_F(TcpServerTest, AConnectionCanBeCutFromAnyThread) {
  HeavyHandler heavy;
  const auto server = ListenTcp(options_, &heavy);
  ASSERT_TRUE(server.ok()) << server.status();
  RawPeer peer((*server)->port(), 4096);
  ASSERT_TRUE(peer.Handshake(client_));
  peer.SendFrame(FrameType::kGet, 1, "");
  ASSERT_TRUE(peer.Drain(100));
  heavy.connection.load()->Cut(absl::ResourceExhaustedError("too slow"));
  EXPECT_TRUE(peer.WaitClosed());
}

TEST_F(TcpServerTest, PortInUseIsNamed) {
  Listen();
  options_.port = server_->port();
  const auto second = ListenTcp(options_, &handler_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("is in use"), absl::string_view::npos)
      << second.status();
}

TEST_F(TcpServerTest, NoTokenMeansLoopbackOnly) {
  options_.identity.token = "";
  options_.listen_address = "0.0.0.0";
  EXPECT_EQ(ListenTcp(options_, &handler_).status().code(), absl::StatusCode::kFailedPrecondition);
  options_.listen_address = "localhost";
  EXPECT_TRUE(ListenTcp(options_, &handler_).ok());
}

TEST_F(TcpServerTest, BadListenAddressIsNamed) {
  options_.listen_address = "no.such.host.invalid";
  const auto server = ListenTcp(options_, &handler_);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(server.status().message().find("no.such.host.invalid"), absl::string_view::npos);
}

absl::Duration CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

TEST_F(TcpServerTest, RunningOutOfDescriptorsRefusesWithoutSpinning) {
  Listen();
  ExpectServing();
  AwaitNoConnections();
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> filler;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) filler.push_back(fd);
  ASSERT_FALSE(filler.empty());
  // One descriptor for this side; none for the server's.
  close(filler.back());
  filler.pop_back();
  {
    RawPeer peer(server_->port());
    ASSERT_TRUE(peer.connected());
    EXPECT_TRUE(peer.WaitClosed());
  }
  EXPECT_EQ(server_->stats().refused, 1u);
  const absl::Duration cpu_before = CpuTime();
  handler_.Await([start = Clock::Real().Mono()] {
    return Clock::Real().Mono() - start > absl::Milliseconds(200);
  });
  EXPECT_LT(CpuTime() - cpu_before, absl::Milliseconds(150));
  for (const int fd : filler) close(fd);
  setrlimit(RLIMIT_NOFILE, &old);
  ExpectServing();
}

// --- the calling side ---

TEST_F(TcpServerTest, StoppedLoopEndsCallsByTheirDeadline) {
  options_.io_threads = 1;
  Listen();
  auto io = IoContext::Create({});
  ASSERT_TRUE(io.ok());
  TcpChannelOptions options;
  options.host = "localhost";  // resolved apart
  options.port = server_->port();
  options.identity.token = client_.token;
  options.connections = 1;
  auto channel = MakeTcpChannel(io->get(), options);
  ASSERT_TRUE(RoundTrip(**io, *channel, "echo x", absl::Seconds(10), false).ok());
  // A handler that blocks the loop thread, as a stopped process would.
  struct Gate {
    Mutex mutex;
    CondVar changed;
    bool open = false;
  } gate;
  class Blocker final : public RequestHandler {
   public:
    explicit Blocker(Gate* gate) : gate_(*gate) {}
    void OnRequest(std::unique_ptr<ServerCall>) override {
      MutexLock lock(gate_.mutex);
      while (!gate_.open) gate_.changed.Wait(gate_.mutex);
    }

   private:
    Gate& gate_;
  } blocker(&gate);
  TcpServerOptions blocked_options = options_;
  auto blocked = ListenTcp(blocked_options, &blocker);
  ASSERT_TRUE(blocked.ok());
  options.port = (*blocked)->port();
  auto to_blocked = MakeTcpChannel(io->get(), options);
  TestCall hasty;
  TestCall patient;
  CallGroup group;
  CallGroup patient_group;
  const MonoTime start = Clock::Real().Mono();
  to_blocked->Start(MakeSpec(FrameType::kPing, "a", absl::Milliseconds(100)), &hasty, &group);
  to_blocked->Start(MakeSpec(FrameType::kPing, "b", absl::Seconds(20)), &patient, &patient_group);
  (*io)->Wait(group);
  const absl::Duration took = Clock::Real().Mono() - start;
  EXPECT_EQ(hasty.status->code(), absl::StatusCode::kDeadlineExceeded) << *hasty.status;
  EXPECT_GE(took, absl::Milliseconds(200));  // the grace, too
  EXPECT_LT(took, absl::Milliseconds(250) + absl::Milliseconds(700));
  // The connection was closed: the other call on it is told so.
  (*io)->Wait(patient_group);
  EXPECT_EQ(patient.status->code(), absl::StatusCode::kUnavailable) << *patient.status;
  {
    MutexLock lock(gate.mutex);
    gate.open = true;
    gate.changed.NotifyAll();
  }
}

// Driven by the I/O thread alone, over one socket that never says a word: each needs a timer of its
// own.
TEST_F(TcpServerTest, CallsNobodyWaitsForEndOneAfterTheOtherThoughThePeerIsSilent) {
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(silent, 8), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  auto io = IoContext::Create({});
  ASSERT_TRUE(io.ok());
  TcpChannelOptions options;
  options.host = "127.0.0.1";
  options.port = ntohs(address.sin_port);
  options.connections = 1;
  auto channel = MakeTcpChannel(io->get(), options);
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> ended{false};
    CallGroup group([&ended] { ended = true; });
    TestCall call;
    channel->Start(MakeSpec(FrameType::kPing, "x", absl::Milliseconds(50)), &call, &group);
    handler_.Await([&] { return ended.load(); });
    ASSERT_TRUE(ended) << "round " << round;
    EXPECT_EQ(call.status->code(), absl::StatusCode::kDeadlineExceeded) << *call.status;
  }
  close(silent);
}

TEST_F(TcpServerTest, NameThatDoesNotResolveIsTheReason) {
  auto io = IoContext::Create({});
  ASSERT_TRUE(io.ok());
  TcpChannelOptions options;
  options.host = "no.such.host.invalid";
  options.port = 7610;
  auto channel = MakeTcpChannel(io->get(), options);
  const auto answer = RoundTrip(**io, *channel, "echo x", absl::Seconds(1));
  EXPECT_FALSE(answer.ok());
  EXPECT_NE(answer.status().message().find("no.such.host.invalid:7610"), absl::string_view::npos)
      << answer.status();
}

}  // namespace
}  // namespace cistern::transport
