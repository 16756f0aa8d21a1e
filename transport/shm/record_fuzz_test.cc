// A store's end of the shared-memory wire against arbitrary bytes, frames, records, descriptors and
// counters: after them it serves on and holds nothing.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/format.h"
#include "transport/shm/ring_memory.h"
#include "transport/shm/shm.h"
#include "transport/stream/raw_peer.h"

namespace cistern::transport {
namespace {

constexpr uint64_t kRing = 256 << 10;

struct Served {
  TempDir folder;
  TestHandler handler;
  std::string path;
  std::unique_ptr<WireServer> server;
  LocalIdentity client;
  int lent = -1;
};

Served& TheServer() {
  static Served& served = *[] {
    auto* s = new Served;
    s->path = s->folder / "store.sock";
    ShmServerOptions options;
    options.socket_path = s->path;
    options.ring_bytes = kRing;
    options.io_threads = 1;
    options.identity.peer_id = "store-id-16bytes";
    options.limits.max_calls_per_connection = 8;
    options.limits.max_meta_bytes = 4'096;
    options.limits.max_payload_bytes = 1'000'000;
    options.limits.stall_timeout = absl::Milliseconds(200);
    auto server = ListenShm(options, &s->handler);
    CISTERN_CHECK(server.ok());
    s->server = *std::move(server);
    s->lent = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CISTERN_CHECK(s->lent >= 0 && ftruncate(s->lent, 1 << 20) == 0 &&
                  fcntl(s->lent, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return s;
  }();
  return served;
}

}  // namespace
}  // namespace cistern::transport

// Byte 0: bit 0 = the handshake is done first, bit 1 = a descriptor of lendable memory goes along,
// bit 2 = the shared memory is filled with byte 1.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cistern::transport;  // NOLINT: the target's name is C
  if (size < 3) return 0;
  Served& served = TheServer();
  RawPeer peer(served.path);
  const bool shake = (data[0] & 1) != 0;
  if (shake) CISTERN_CHECK(peer.Handshake(served.client));
  if (shake && (data[0] & 4) != 0) {
    auto ring = RingMemory::Adopt(OwnedFd(dup(peer.fds()[0])), kRing);
    CISTERN_CHECK(ring.ok());
    std::memset(static_cast<void*>(ring->page()), data[1], RingMemoryBytes(kRing));
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data + 2), size - 2);
  if ((data[0] & 2) != 0) {
    peer.SendWithFds(bytes, {served.lent});
  } else {
    peer.Send(bytes);
  }
  return 0;
}

namespace cistern::transport {
namespace {

constexpr unsigned kSeed = 20261130;

std::string Record(std::mt19937* random) {
  PieceRecord record;
  record.kind =
      static_cast<RecordKind>((*random)() % 8 == 0 ? (*random)() % 256 : 1 + (*random)() % 5);
  record.buffer = static_cast<uint16_t>((*random)() % 4 == 0 ? (*random)() % 65'536 : 0);
  record.bytes = static_cast<uint32_t>((*random)() % 6 == 0 ? (*random)() : (*random)() % 60'000);
  switch ((*random)() % 4) {
    case 0:
      record.position = (*random)();
      break;
    case 1:
      record.position = 1 << 20;
      break;
    default:
      break;
  }
  std::string bytes(PieceCarrier::kRecordBytes, '\0');
  EncodeRecord(record, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

// Mostly plausible: frames that announce payload, and records in its place.
std::string Conversation(std::mt19937* random) {
  static constexpr const char* kMetas[] = {"echo x",           "get 500000 100 1",
                                           "short 900 7 2",    "put 50000 5 3",
                                           "ignore",           "put 60 5 3",
                                           "ready 70000 9 1",  "early",
                                           "twice 500 3 1",    "hold",
                                           "thread x",         "put 0 1 1",
                                           "get 50000 1000 3", "drop"};
  std::string bytes(1, static_cast<char>((*random)() % 8));
  bytes[0] |= static_cast<char>((*random)() % 8 == 0 ? 0 : 1);
  bytes.push_back(static_cast<char>((*random)()));
  for (unsigned i = 0; i < 1 + (*random)() % 10; ++i) {
    if ((*random)() % 2 == 0) {
      bytes += Record(random);
      continue;
    }
    const FrameType type = (*random)() % 3 == 0   ? FrameType::kData
                           : (*random)() % 8 == 0 ? FrameType::kCancel
                                                  : FrameType::kPut;
    std::string frame =
        RawFrame(type, (*random)() % 6, kMetas[(*random)() % std::size(kMetas)], {});
    const uint64_t payload = (*random)() % 2 == 0 ? 0 : (*random)() % 70'000;
    std::memcpy(frame.data() + 24, &payload, sizeof(payload));
    bytes += frame;
  }
  if ((*random)() % 3 == 0) {
    bytes[2 + (*random)() % (bytes.size() - 2)] ^= static_cast<char>(1 << (*random)() % 8);
  }
  if ((*random)() % 4 == 0) bytes.resize(3 + (*random)() % (bytes.size() - 2));
  return bytes;
}

TEST(RecordFuzzTest, ConversationsLeaveNothingBehind) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 400; ++i) {
    const std::string input = Conversation(&random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  Served& served = TheServer();
  served.handler.Await([&] {
    // A held call keeps what its peer sent behind it unread, the end of the stream too.
    served.handler.ReleaseHeld();
    return served.server->stats().connections == 0;
  });
  EXPECT_EQ(served.handler.connected, served.handler.disconnected);
  RawPeer peer(served.path);
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
