// A server's connection state machine against arbitrary conversations: after them it serves on and
// holds nothing.

#include <memory>
#include <random>
#include <string>

#include "base/status.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/stream/raw_peer.h"
#include "transport/tcp/tcp.h"

namespace cistern::transport {
namespace {

struct Served {
  TestHandler handler;
  std::unique_ptr<WireServer> server;
  LocalIdentity client;
};

Served& TheServer() {
  static Served& served = *[] {
    auto* s = new Served;
    TcpServerOptions options;
    options.io_threads = 1;
    options.identity.peer_id = "store-id-16bytes";
    options.limits.max_calls_per_connection = 8;
    options.limits.max_meta_bytes = 4'096;
    options.limits.max_payload_bytes = 100'000;
    auto server = ListenTcp(options, &s->handler);
    CISTERN_CHECK(server.ok());
    s->server = *std::move(server);
    return s;
  }();
  return served;
}

}  // namespace
}  // namespace cistern::transport

// Byte 0 odd: the handshake is done first.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern::transport;  // NOLINT: the target's name is C
  if (size == 0) return 0;
  Served& served = TheServer();
  RawPeer peer(served.server->port());
  if ((data[0] & 1) != 0) CISTERN_CHECK(peer.Handshake(served.client));
  peer.Send({reinterpret_cast<const char*>(data + 1), size - 1});
  return 0;
}

namespace cistern::transport {
namespace {

constexpr unsigned kSeed = 20240602;

// Mostly plausible frames: a few ids, the verbs of TestHandler, payload of any size.
std::string Conversation(std::mt19937* random) {
  static constexpr const char* kMetas[] = {
      "echo x",  "fail x", "drop",           "hold",          "get 50000 100 1", "short 900 7 2",
      "put 5 5", "ignore", "put 60000 50 3", "ready 70000 9", "early",           "protocol",
      "",        "noise",  "ready 0 1 1",    "thread x",      "put 0 1 1",       "twice 50 3 1"};
  std::string bytes(1, static_cast<char>((*random)() % 5 == 0 ? 0 : 1));
  for (unsigned i = 0; i < 1 + (*random)() % 12; ++i) {
    const unsigned kind = (*random)() % 10;
    FrameType type = FrameType::kPut;
    if (kind < 3) type = FrameType::kData;
    if (kind == 3) type = FrameType::kCancel;
    if (kind == 4) type = static_cast<FrameType>((*random)() % 256);
    bytes += RawFrame(type, (*random)() % 6, kMetas[(*random)() % std::size(kMetas)],
                      std::string((*random)() % 3 == 0 ? (*random)() % 80'000 : 0, 'p'));
  }
  if ((*random)() % 3 == 0) {
    bytes[1 + (*random)() % (bytes.size() - 1)] ^= static_cast<char>(1 << (*random)() % 8);
  }
  if ((*random)() % 3 == 0) bytes.resize(1 + (*random)() % bytes.size());
  return bytes;
}

TEST(ConnectionFuzzTest, ConversationsLeaveNothingBehind) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 300; ++i) {
    const std::string input = Conversation(&random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  for (int i = 0; i < 100; ++i) {
    std::string input(1 + random() % 300, '\0');
    for (char& c : input) c = static_cast<char>(random());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  Served& served = TheServer();
  served.handler.Await([&] {
    // A held call keeps what its peer sent behind it unread, the end of the stream too.
    served.handler.ReleaseHeld();
    return served.server->stats().connections == 0;
  });
  EXPECT_EQ(served.handler.connected, served.handler.disconnected);
  RawPeer peer(served.server->port());
  ASSERT_TRUE(peer.Handshake(served.client));
  peer.SendFrame(FrameType::kPing, 1, "echo alive");
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "alive");
  served.server->Stop();
  served.handler.JoinThreads();
}

}  // namespace
}  // namespace cistern::transport
