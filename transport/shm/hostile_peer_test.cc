// A store's shared-memory wire against clients that lie: about lengths, about what they lend, with
// descriptors of the wrong kind, with too many of them, as somebody else.

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/shm/format.h"
#include "transport/shm/ring_memory.h"
#include "transport/shm/shm.h"
#include "transport/stream/raw_peer.h"

namespace cistern::transport {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRing = 256 << 10;
constexpr uid_t kNobody = 65534;

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Whether this process has a mapping of that file with these rights.
bool IsMapped(const std::string& path, const std::string& rights) {
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    if (absl::StrContains(line, path) && absl::StrContains(line, " " + rights + " ")) return true;
  }
  return false;
}

std::string Bytes(const PieceRecord& record) {
  std::string bytes(PieceCarrier::kRecordBytes, '\0');
  EncodeRecord(record, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes;
}

// A request's frame that announces payload and brings none in line.
std::string Head(uint64_t id, std::string_view meta, uint64_t payload_bytes) {
  std::string bytes = RawFrame(FrameType::kPut, id, meta, {});
  std::memcpy(bytes.data() + 24, &payload_bytes, 8);
  return bytes;
}

OwnedFd SealedMemory(uint64_t bytes, int seals = F_SEAL_SHRINK) {
  OwnedFd fd(memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

class HostilePeerTest : public testing::Test {
 protected:
  HostilePeerTest() {
    options_.socket_path = folder_ / "store.sock";
    options_.ring_bytes = kRing;
    options_.identity.kind = wire::PEER_STORE;
    options_.identity.token = "a token of more than thirty-two bytes";
    options_.identity.peer_id = "store-id-16bytes";
    client_.token = options_.identity.token;
  }
  ~HostilePeerTest() override {
    if (server_ != nullptr) server_->Stop();
  }
  void Listen() {
    auto server = ListenShm(options_, &handler_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  std::unique_ptr<RawPeer> Connect() {
    auto peer = std::make_unique<RawPeer>(options_.socket_path);
    EXPECT_TRUE(peer->Handshake(client_)) << peer->refusal();
    return peer;
  }
  // As a client that behaves.
  void ExpectServing() {
    auto io = IoContext::Create({});
    ASSERT_THAT(io, IsOk());
    ShmChannelOptions options;
    options.socket_path = options_.socket_path;
    options.identity = client_;
    auto channel = MakeShmChannel(io->get(), options);
    TestCall call;
    CallGroup group;
    call.after_ready = [] { return std::make_unique<PatternSource>(Pattern(3, 700'000), 100'000); };
    channel->Start(MakeSpec(FrameType::kPut, "ready 700000 9999 3", absl::Seconds(20)), &call,
                   &group);
    (*io)->Wait(group);
    ASSERT_TRUE(call.status.has_value());
    EXPECT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.meta, "right");
  }
  // The connection that sends `bytes` (and `fds` along) is cut, and nothing of it stays.
  void ExpectCut(const std::function<void(RawPeer&)>& send, const std::string& what) {
    SCOPED_TRACE(what);
    handler_.Await([&] { return server_->stats().connections == 0; });
    const size_t open_before = OpenDescriptors();
    const uint64_t errors_before = server_->stats().protocol_errors;
    {
      const auto peer = Connect();
      send(*peer);
      EXPECT_TRUE(peer->WaitClosed());
    }
    handler_.Await([&] { return server_->stats().connections == 0; });
    EXPECT_EQ(server_->stats().protocol_errors, errors_before + 1);
    handler_.Await([&] { return OpenDescriptors() == open_before; });
  }

  const TempDir folder_;
  ShmServerOptions options_;
  LocalIdentity client_;
  TestHandler handler_;
  std::unique_ptr<WireServer> server_;
};

// --- what a client is handed ---

TEST_F(HostilePeerTest, HandsOutASealedRingAndAnEventfdAndNothingElse) {
  Listen();
  const auto peer = Connect();
  ASSERT_EQ(peer->fds().size(), 2u);
  const int ring = peer->fds()[0];
  char link[64] = {};
  ASSERT_GT(readlink(absl::StrCat("/proc/self/fd/", ring).c_str(), link, sizeof(link) - 1), 0);
  EXPECT_TRUE(absl::StartsWith(link, "/memfd:cistern-ring")) << link;
  struct stat info {};
  ASSERT_EQ(fstat(ring, &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(RingMemoryBytes(kRing)));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Neither it nor what can be opened from it can be cut short or grown.
  const OwnedFd again(open(absl::StrCat("/proc/self/fd/", ring).c_str(), O_RDWR | O_CLOEXEC));
  for (const int fd : {ring, again.get()}) {
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_NE(ftruncate(fd, 1 << 30), 0);
  }
  ASSERT_GT(readlink(absl::StrCat("/proc/self/fd/", peer->fds()[1]).c_str(), link, sizeof(link)),
            0);
  EXPECT_TRUE(absl::StartsWith(link, "anon_inode:[eventfd]")) << link;
}

TEST_F(HostilePeerTest, SmallConnectionsGetNothing) {
  Listen();
  RawPeer peer(options_.socket_path);
  ASSERT_TRUE(peer.Handshake(client_, /*small_lane=*/true));
  EXPECT_TRUE(peer.fds().empty());
  peer.SendFrame(FrameType::kPut, 1, "put 1000 100 4", Pattern(4, 1000));
  const auto answer = peer.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "right");
}

TEST_F(HostilePeerTest, NothingIsHandedOutBeforeTheTokenIsProved) {
  Listen();
  client_.token = "another token of more than 32 bytes";
  RawPeer peer(options_.socket_path);
  EXPECT_FALSE(peer.Handshake(client_));
  EXPECT_TRUE(peer.fds().empty());
}

// --- holes ---

TEST_F(HostilePeerTest, PunchedRingHarmsOnlyWhoPunchedIt) {
  Listen();
  const auto peer = Connect();
  ASSERT_EQ(peer->fds().size(), 2u);
  ASSERT_EQ(fallocate(peer->fds()[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      static_cast<off_t>(RingMemoryBytes(kRing))),
            0);
  // The bytes are gone: what the store copies out is zeros.
  peer->Send(Head(1, "put 1000 100 4", 1000) + Bytes({.kind = RecordKind::kRing, .bytes = 1000}));
  const auto answer = peer->Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->meta, "wrong");
  ExpectServing();
}

TEST_F(HostilePeerTest, PunchedLentMemoryReadsAsZerosAndTakesNoMemory) {
  Listen();
  // 1 TiB of holes.
  constexpr uint64_t kHuge = uint64_t{1} << 40;
  const OwnedFd memory = SealedMemory(kHuge);
  const OwnedFd readable(
      open(absl::StrCat("/proc/self/fd/", memory.get()).c_str(), O_RDONLY | O_CLOEXEC));
  const std::string pattern = Pattern(4, 100'000);
  ASSERT_EQ(pwrite(memory.get(), pattern.data(), pattern.size(), 12'345), 100'000);
  const auto peer = Connect();
  peer->SendWithFds(Bytes({.kind = RecordKind::kLend, .buffer = 3, .position = kHuge}),
                    {readable.get()});
  const auto put = [&](uint64_t id, uint64_t offset) {
    peer->Send(
        Head(id, "put 100000 9000 4", 100'000) +
        Bytes({.kind = RecordKind::kLent, .buffer = 3, .bytes = 100'000, .position = offset}));
    const auto answer = peer->Receive();
    return answer.has_value() ? answer->meta : "cut";
  };
  EXPECT_EQ(put(1, 12'345), "right");
  EXPECT_EQ(put(2, kHuge - 100'000), "wrong");  // zeros
  ASSERT_EQ(fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20), 0);
  const size_t before = ResidentBytes();
  EXPECT_EQ(put(3, 12'345), "wrong");
  EXPECT_LT(ResidentBytes(), before + (8 << 20));
  struct stat info {};
  ASSERT_EQ(fstat(memory.get(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);  // reading filled no hole
  ExpectServing();
}

TEST_F(HostilePeerTest, HolesOfMappedMemoryReadAsZerosAndTakeNoMemory) {
  Listen();
  constexpr uint64_t kHuge = uint64_t{16} << 30;
  const OwnedFd memory = SealedMemory(kHuge);
  const std::string pattern = Pattern(4, 100'000);
  ASSERT_EQ(pwrite(memory.get(), pattern.data(), pattern.size(), 12'345), 100'000);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  const auto peer = Connect();
  peer->SendWithFds(Bytes({.kind = RecordKind::kLend, .buffer = 3, .position = kHuge}),
                    {memory.get()});
  const auto put = [&](uint64_t id, uint64_t offset, uint32_t seed) {
    peer->Send(
        Head(id, absl::StrCat("put 100000 9000 ", seed), 100'000) +
        Bytes({.kind = RecordKind::kLent, .buffer = 3, .bytes = 100'000, .position = offset}));
    const auto answer = peer->Receive();
    return answer.has_value() ? answer->meta : "cut";
  };
  EXPECT_EQ(put(1, 12'345, 4), "right");
  ASSERT_TRUE(IsMapped("/memfd:hostile", "r--s"));
  struct stat before {};
  ASSERT_EQ(fstat(memory.get(), &before), 0);
  EXPECT_EQ(put(2, 50'000, 4), "wrong");  // the second half of it is a hole
  uint64_t id = 3;
  for (uint64_t at = 1 << 20; at < 300 << 20; at += 1 << 20) {
    ASSERT_EQ(put(id++, at, 4), "wrong");
  }
  EXPECT_EQ(put(id++, kHuge - 100'000, 4), "wrong");
  struct stat after {};
  ASSERT_EQ(fstat(memory.get(), &after), 0);
  EXPECT_EQ(after.st_blocks, before.st_blocks);
  EXPECT_EQ(put(id++, 12'345, 4), "right");
  ExpectServing();
}

// Every way to take pages from under a mapping is tried while the store reads from it.
TEST_F(HostilePeerTest, MappedMemoryCannotBeTakenFromUnderTheStore) {
  Listen();
  constexpr size_t kBytes = 4 << 20;
  const OwnedFd memory = SealedMemory(kBytes);
  void* const data =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), /*offset=*/0);
  ASSERT_NE(data, MAP_FAILED);
  const std::string pattern = Pattern(4, kBytes);
  std::memcpy(data, pattern.data(), kBytes);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  const auto peer = Connect();
  peer->SendWithFds(Bytes({.kind = RecordKind::kLend, .buffer = 0, .position = kBytes}),
                    {memory.get()});
  std::atomic<bool> stop{false};
  std::atomic<int> taken{0};
  std::thread taker([&] {
    while (!stop) {
      if (ftruncate(memory.get(), 0) == 0) ++taken;
      if (fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) == 0) {
        ++taken;
      }
      if (madvise(data, kBytes, MADV_REMOVE) == 0) ++taken;
      (void)madvise(data, kBytes, MADV_DONTNEED);
      (void)madvise(data, kBytes, MADV_PAGEOUT);
    }
  });
  std::string records;
  for (uint64_t at = 0; at < kBytes; at += kMaxPieceBytes) {
    records +=
        Bytes({.kind = RecordKind::kLent, .buffer = 0, .bytes = kMaxPieceBytes, .position = at});
  }
  for (uint64_t id = 1; id <= 20; ++id) {
    peer->Send(Head(id, absl::StrCat("put ", kBytes, " 9000 4"), kBytes) + records);
    const auto answer = peer->Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->meta, "right");
  }
  EXPECT_TRUE(IsMapped("/memfd:hostile", "r--s"));
  stop = true;
  taker.join();
  EXPECT_EQ(taken, 0);
  munmap(data, kBytes);
  ExpectServing();
}

// --- what is lent ---

TEST_F(HostilePeerTest, WhatIsNotSealedMemoryIsNotBorrowed) {
  Listen();
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  const OwnedFd pipe_read(pipe_fds[0]);
  const OwnedFd pipe_write(pipe_fds[1]);
  const OwnedFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  const OwnedFd directory(open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  WriteFile(folder_ / "file", std::string(8192, 'f'));
  const OwnedFd file(open((folder_ / "file").c_str(), O_RDWR | O_CLOEXEC));
  const OwnedFd event(eventfd(0, EFD_CLOEXEC));
  const OwnedFd unsealed = SealedMemory(8192, 0);
  const OwnedFd grow_only = SealedMemory(8192, F_SEAL_GROW);
  const OwnedFd sealed = SealedMemory(8192);
  const OwnedFd write_only(
      open(absl::StrCat("/proc/self/fd/", sealed.get()).c_str(), O_WRONLY | O_CLOEXEC));
  const OwnedFd path_only(
      open(absl::StrCat("/proc/self/fd/", sealed.get()).c_str(), O_PATH | O_CLOEXEC));
  const struct {
    const char* what;
    int fd;
  } kWrong[] = {
      {"pipe", pipe_read.get()},       {"/dev/zero", zero.get()},
      {"directory", directory.get()},  {"file on a disk", file.get()},
      {"eventfd", event.get()},        {"unsealed memfd", unsealed.get()},
      {"may shrink", grow_only.get()}, {"write only", write_only.get()},
      {"path only", path_only.get()},
  };
  for (const auto& wrong : kWrong) {
    ASSERT_GE(wrong.fd, 0) << wrong.what;
    ExpectCut(
        [&](RawPeer& peer) {
          peer.SendWithFds(Bytes({.kind = RecordKind::kLend, .position = 4096}), {wrong.fd});
        },
        wrong.what);
  }
  ExpectServing();
}

TEST_F(HostilePeerTest, LiesAboutLentMemoryAreCut) {
  Listen();
  const OwnedFd memory = SealedMemory(8192);
  const auto lend = [&](uint16_t buffer, uint64_t bytes) {
    return Bytes({.kind = RecordKind::kLend, .buffer = buffer, .position = bytes});
  };
  const auto cut = [&](const std::string& bytes, const std::string& what) {
    ExpectCut([&](RawPeer& peer) { peer.SendWithFds(bytes, {memory.get()}); }, what);
  };
  cut(lend(0, 8193), "longer than it is");
  cut(lend(0, 0), "of no bytes");
  cut(lend(0, UINT64_MAX), "of all bytes there are");
  cut(lend(16, 8192), "beyond the last number");
  cut(lend(0xFFFF, 8192), "far beyond the last number");
  cut(lend(1, 8192) + lend(1, 8192), "twice, the second without a descriptor");
  const auto piece = [&](uint16_t buffer, uint32_t bytes, uint64_t offset) {
    return lend(2, 8192) + Head(1, "put 5000 100 1", 5000) +
           Bytes({.kind = RecordKind::kLent, .buffer = buffer, .bytes = bytes, .position = offset});
  };
  cut(piece(2, 5000, 3193), "a byte too far");
  cut(piece(2, 5000, UINT64_MAX - 100), "around the end of numbers");
  cut(piece(2, 5001, 0), "beyond the frame's payload");
  cut(piece(2, 0, 0), "of no bytes");
  cut(piece(2, kMaxPieceBytes + 1, 0), "longer than a piece is");
  cut(piece(2, UINT32_MAX, 0), "of 4 GiB");
  cut(piece(3, 5000, 0), "of a buffer that was not lent");
  cut(piece(0xFFFF, 5000, 0), "of a buffer that cannot be");
  cut(lend(2, 8192) + Bytes({.kind = RecordKind::kUnlend, .buffer = 2}) +
          Bytes({.kind = RecordKind::kUnlend, .buffer = 2}),
      "taken back twice");
  ExpectServing();
}

TEST_F(HostilePeerTest, DescriptorsThatNothingAsksForAreClosed) {
  Listen();
  const OwnedFd memory = SealedMemory(8192);
  const std::string echo = RawFrame(FrameType::kPing, 1, "echo x", {});
  for (const size_t count : {size_t{2}, size_t{3}, size_t{200}}) {
    ExpectCut([&](RawPeer& peer) { peer.SendWithFds(echo, std::vector<int>(count, memory.get())); },
              absl::StrCat(count, " in one message"));
  }
  ExpectCut(
      [&](RawPeer& peer) {
        for (uint64_t id = 1; id < 20; ++id) {
          if (!peer.SendWithFds(RawFrame(FrameType::kPing, id, "echo x", {}), {memory.get()}))
            break;
        }
      },
      "one with each frame");
  ExpectCut([&](RawPeer& peer) { peer.Send(Bytes({.kind = RecordKind::kLend, .position = 4096})); },
            "none where one is due");
  // Before the handshake is done, too.
  RawPeer early(options_.socket_path);
  early.SendWithFds("x", {memory.get()});
  EXPECT_TRUE(early.WaitClosed());
  ExpectServing();
}

TEST_F(HostilePeerTest, LendsBeyondTheLimitAreCutAndAllAreGivenBack) {
  Listen();
  const OwnedFd memory = SealedMemory(8192);
  ExpectCut(
      [&](RawPeer& peer) {
        for (uint16_t buffer = 0; buffer < 100; ++buffer) {
          if (!peer.SendWithFds(
                  Bytes({.kind = RecordKind::kLend, .buffer = buffer, .position = 8192}),
                  {memory.get()})) {
            break;
          }
        }
      },
      "a hundred buffers");
  ExpectServing();
}

// --- records and counters ---

TEST_F(HostilePeerTest, RecordsThatCannotBeAreCut) {
  Listen();
  const std::string head = Head(1, "put 5000 100 1", 5000);
  const auto ring = [](uint32_t bytes, uint64_t position) {
    return Bytes({.kind = RecordKind::kRing, .bytes = bytes, .position = position});
  };
  const auto cut = [&](const std::string& bytes, const std::string& what) {
    ExpectCut([&](RawPeer& peer) { peer.Send(bytes); }, what);
  };
  cut(head + ring(0, 0), "no bytes");
  cut(head + ring(5001, 0), "more than the frame has");
  cut(head + ring(5000, 1), "out of order");
  cut(head + ring(5000, UINT64_MAX), "out of all order");
  cut(head + ring(kMaxPieceBytes + 1, 0), "too long");
  cut(ring(5, 0), "outside of a frame's payload");
  cut(head + std::string(5000, 'x'), "payload in line");
  cut(head + RawFrame(FrameType::kPing, 2, "echo x", {}), "a frame in the midst of payload");
  for (const uint8_t kind : {0, 3, 6, 255}) {
    cut(Bytes({.kind = static_cast<RecordKind>(kind)}), absl::StrCat("kind ", kind));
  }
  ExpectServing();
}

TEST_F(HostilePeerTest, ReleasesOfWhatWasNotSentAreCut) {
  Listen();
  ExpectCut(
      [&](RawPeer& peer) {
        auto ring = RingMemory::Adopt(OwnedFd(dup(peer.fds()[0])), kRing);
        ASSERT_THAT(ring, IsOk());
        ring->page()->to_client.released = uint64_t{1} << 40;
        peer.SendFrame(FrameType::kGet, 1, "get 100000 1000 1");
      },
      "released too much");
  ExpectServing();
}

TEST_F(HostilePeerTest, ReleasesThatRunBackwardsAreCut) {
  options_.limits.stall_timeout = absl::Milliseconds(500);
  Listen();
  ExpectCut(
      [&](RawPeer& peer) {
        auto ring = RingMemory::Adopt(OwnedFd(dup(peer.fds()[0])), kRing);
        ASSERT_THAT(ring, IsOk());
        peer.SendFrame(FrameType::kGet, 1, "get 1000000 1000 1");
        // Until the store has filled the ring, and read what was released.
        handler_.Await([&] { return ring->page()->to_client.wake_at != 0; });
        ring->page()->to_client.released = 200'000;
        const uint64_t one = 1;
        ASSERT_EQ(write(peer.fds()[1], &one, 8), 8);
        handler_.Await([&] { return ring->page()->to_client.wake_at > kRing; });
        ring->page()->to_client.released = 1;
        ASSERT_EQ(write(peer.fds()[1], &one, 8), 8);
      },
      "released less than before");
  ExpectServing();
}

TEST_F(HostilePeerTest, NoiseInSharedMemoryHarmsOnlyItsMaker) {
  Listen();
  const auto peer = Connect();
  auto ring = RingMemory::Adopt(OwnedFd(dup(peer->fds()[0])), kRing);
  ASSERT_THAT(ring, IsOk());
  std::memset(reinterpret_cast<char*>(ring->page()), 0xA5, RingMemoryBytes(kRing));
  peer->SendFrame(FrameType::kGet, 1, "get 100000 1000 1");
  peer->Send(Head(2, "put 1000 100 4", 1000) + Bytes({.kind = RecordKind::kRing, .bytes = 1000}));
  EXPECT_TRUE(peer->WaitClosed());
  ExpectServing();
}

absl::Duration CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

TEST_F(HostilePeerTest, AReaderThatTakesNothingCostsNothingAndIsCut) {
  options_.limits.stall_timeout = absl::Milliseconds(400);
  Listen();
  const auto peer = Connect();
  peer->SendFrame(FrameType::kGet, 1, "get 10000000 1000 1");
  auto ring = RingMemory::Adopt(OwnedFd(dup(peer->fds()[0])), kRing);
  ASSERT_THAT(ring, IsOk());
  handler_.Await([&] { return ring->page()->to_client.wake_at != 0; });
  const absl::Duration before = CpuTime();
  const MonoTime start = Clock::Real().Mono();
  EXPECT_FALSE(peer->WaitClosed(absl::Milliseconds(200)));
  // A thread that spins would have used all of it.
  EXPECT_LT(CpuTime() - before, (Clock::Real().Mono() - start) / 2);
  EXPECT_TRUE(peer->WaitClosed());
  handler_.Await([&] { return handler_.sent_failed == 1; });
  EXPECT_EQ(handler_.sources_destroyed, 1);
  EXPECT_EQ(server_->stats().stalled, 1u);
}

// What all epoll instances of this process watch.
size_t WatchedDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fdinfo");
  while (const dirent* entry = readdir(folder)) {
    std::ifstream file(absl::StrCat("/proc/self/fdinfo/", entry->d_name));
    for (std::string line; std::getline(file, line);) {
      if (absl::StartsWith(line, "tfd:")) ++count;
    }
  }
  closedir(folder);
  return count;
}

TEST_F(HostilePeerTest, AnEventfdThatThePeerKeepsIsNotWatchedForEver) {
  Listen();
  ExpectServing();
  handler_.Await([&] { return server_->stats().connections == 0; });
  const size_t before = WatchedDescriptors();
  ASSERT_GT(before, 0u);
  std::vector<OwnedFd> kept;
  for (int i = 0; i < 5; ++i) {
    const auto peer = Connect();
    ASSERT_EQ(peer->fds().size(), 2u);
    kept.push_back(OwnedFd(dup(peer->fds()[1])));
  }
  handler_.Await([&] { return server_->stats().connections == 0; });
  EXPECT_EQ(WatchedDescriptors(), before);
}

// --- who ---

// Runs `fn` on a thread of another user (the kernel's users are of threads; glibc's wrappers make
// them the process's).
void AsNobody(const std::function<void()>& fn) {
  std::thread thread([&] {
    ASSERT_EQ(syscall(SYS_setgroups, 0, nullptr), 0);
    ASSERT_EQ(syscall(SYS_setresgid, kNobody, kNobody, kNobody), 0);
    ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    fn();
  });
  thread.join();
}

class OtherUserTest : public HostilePeerTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  }
};

TEST_F(OtherUserTest, TheSocketsFileKeepsOthersOut) {
  Listen();
  AsNobody([&] { EXPECT_FALSE(RawPeer(options_.socket_path).connected()); });
  ExpectServing();
}

TEST_F(OtherUserTest, WhoComesInAllTheSameIsToldAndCut) {
  Listen();
  ASSERT_EQ(chmod(options_.socket_path.c_str(), 0666), 0);
  AsNobody([&] {
    RawPeer peer(options_.socket_path);
    ASSERT_TRUE(peer.connected());
    EXPECT_FALSE(peer.Handshake(client_));
    EXPECT_THAT(peer.refusal(), HasSubstr("uid 65534"));
    EXPECT_TRUE(peer.fds().empty());
    EXPECT_TRUE(peer.WaitClosed());
  });
  EXPECT_EQ(handler_.connected, 0);
  ExpectServing();
}

TEST_F(OtherUserTest, ListedUsersComeInAndNobodyElse) {
  options_.allowed_uids = {kNobody};
  Listen();
  AsNobody([&] {
    RawPeer peer(options_.socket_path);
    ASSERT_TRUE(peer.connected());
    EXPECT_TRUE(peer.Handshake(client_)) << peer.refusal();
    // The ring came by the socket; it cannot be had by its name in /proc.
    ASSERT_EQ(peer.fds().size(), 2u);
    EXPECT_LT(open(absl::StrCat("/proc/self/task/", gettid(), "/fd/", peer.fds()[0]).c_str(),
                   O_RDWR | O_CLOEXEC),
              0);
  });
  // Not even the store's own user, who is not listed.
  RawPeer own(options_.socket_path);
  EXPECT_FALSE(own.Handshake(client_));
  EXPECT_THAT(own.refusal(), HasSubstr("uid 0"));
}

TEST_F(OtherUserTest, ListedGroupsComeIn) {
  options_.allowed_gids = {kNobody};
  Listen();
  AsNobody([&] {
    RawPeer peer(options_.socket_path);
    EXPECT_TRUE(peer.Handshake(client_)) << peer.refusal();
  });
}

TEST_F(OtherUserTest, RefusalIsTheCallsStatus) {
  options_.allowed_uids = {kNobody};
  Listen();
  auto io = IoContext::Create({});
  ASSERT_THAT(io, IsOk());
  ShmChannelOptions options;
  options.socket_path = options_.socket_path;
  options.identity = client_;
  auto channel = MakeShmChannel(io->get(), options);
  EXPECT_THAT(RoundTrip(**io, *channel, "echo x").status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("shm.allowed_uids")));
}

// --- the socket's file ---

TEST_F(HostilePeerTest, SocketOfADeadProcessIsReplaced) {
  Listen();
  // As a killed process leaves it: the file stays, nobody listens.
  const std::string kept = options_.socket_path + ".kept";
  ASSERT_EQ(rename(options_.socket_path.c_str(), kept.c_str()), 0);
  server_->Stop();
  ASSERT_EQ(rename(kept.c_str(), options_.socket_path.c_str()), 0);
  Listen();
  ExpectServing();
  server_->Stop();
  EXPECT_NE(access(options_.socket_path.c_str(), F_OK), 0);  // gone with its server
}

TEST_F(HostilePeerTest, SocketOfALiveProcessIsLeftAlone) {
  Listen();
  TestHandler other;
  EXPECT_THAT(ListenShm(options_, &other),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("another process listens")));
  ExpectServing();
}

TEST_F(HostilePeerTest, FileOfASuccessorIsLeftAlone) {
  Listen();
  ASSERT_EQ(unlink(options_.socket_path.c_str()), 0);
  TestHandler handler;
  auto successor = ListenShm(options_, &handler);
  ASSERT_THAT(successor, IsOk());
  server_->Stop();
  EXPECT_EQ(access(options_.socket_path.c_str(), F_OK), 0);
}

TEST_F(HostilePeerTest, PathsBeyondASocketAddressWork) {
  const std::string deep = folder_ / std::string(150, 'd');
  ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
  options_.socket_path = deep + "/store.sock";
  Listen();
  ExpectServing();
}

TEST_F(HostilePeerTest, FolderThatIsMissingIsNamed) {
  options_.socket_path = folder_ / "none/store.sock";
  EXPECT_THAT(ListenShm(options_, &handler_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("none/store.sock")));
}

}  // namespace
}  // namespace cistern::transport
