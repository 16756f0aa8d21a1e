// Peers that are a burden: slow, idle, greedy, or talking nonsense. The others do not notice.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

#include "proto/data.pb.h"
#include "tests/integration/trouble/trouble_fixture.h"
#include "transport/frame.h"
#include "transport/stream/raw_peer.h"

namespace cistern {
namespace {

using transport::FrameType;
using transport::RawPeer;

class PeersTest : public TroubleFixture {
 protected:
  PeersTest() {
    // For the many connections; the daemons inherit it.
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 20'000);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  transport::LocalIdentity Identity(uint64_t incarnation) const {
    transport::LocalIdentity identity;
    identity.kind = wire::PEER_CLIENT;
    identity.token = ReadFile(pool_->connection().token_file);
    if (!identity.token.empty() && identity.token.back() == '\n') identity.token.pop_back();
    identity.incarnation = incarnation;
    return identity;
  }
  // A connection to a store with the namespace bound as 1.
  std::unique_ptr<RawPeer> Dial(int store, uint64_t incarnation, int receive_buffer = 0) {
    auto peer = std::make_unique<RawPeer>(ports(Store(store)).data, receive_buffer);
    EXPECT_TRUE(peer->Handshake(Identity(incarnation)));
    wire::BindNamespace bind;
    bind.set_id(std::string(ns_->id().view()));
    bind.set_name("test");
    bind.set_fingerprint("v1");
    EXPECT_TRUE(peer->SendFrame(FrameType::kBindNamespace, 1, bind.SerializeAsString()));
    const auto bound = peer->Receive();
    EXPECT_TRUE(bound.has_value() && bound->header.type == FrameType::kNamespaceBound);
    return peer;
  }
  static std::string GetMeta(const std::string& ids, uint32_t length, absl::Duration deadline) {
    wire::GetRequest get;
    get.set_ns_ref(1);
    get.set_ids(ids);
    get.set_target_lengths(std::string(reinterpret_cast<const char*>(&length), sizeof(length)));
    get.set_deadline_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(deadline)));
    return get.SerializeAsString();
  }
  // With AddressSanitizer what is freed is kept for a while (256 MiB of it, by default), to find
  // uses of it: as little as possible by daemons whose memory is looked at. Before they start.
  static void KeepLittleOfWhatIsFreed() {
    const char* const options = getenv("ASAN_OPTIONS");
    const std::string all = std::string(options == nullptr ? "" : options) +
                            ":quarantine_size_mb=8:thread_local_quarantine_size_kb=64";
    setenv("ASAN_OPTIONS", all.c_str(), /*overwrite=*/1);
  }
  static int OpenFiles(pid_t pid) {
    std::error_code error;
    const std::filesystem::path path = "/proc/" + std::to_string(pid) + "/fd";
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(path, error),
                                          std::filesystem::directory_iterator()));
  }
};

// --- slow readers ---

TEST_F(PeersTest, ASlowReaderOverItsShareIsCutAndItsExtentsAreFree) {
  constexpr uint64_t kChunk = 1 << 20;
  constexpr int kChunks = 24;
  StartTroublePool(uint64_t{64} << 20, /*stores=*/1,
                   {"slow_peer=300ms", "stall_timeout=10m", "max_peer_share=0.1"});
  std::string ids;
  for (int i = 0; i < kChunks; ++i) {
    const std::string key = "chunk " + std::to_string(i);
    ASSERT_EQ(Put(key, static_cast<uint64_t>(i), kChunk, Visible()), ChunkCode::kOk) << message_;
    ids += Id(key).view();
  }
  // 24 MiB of 64 are asked for, for an hour, and never read.
  const auto slow = Dial(0, /*incarnation=*/77, /*receive_buffer=*/4'096);
  ASSERT_TRUE(slow->SendFrame(FrameType::kGet, 2, GetMeta(ids, kChunk, absl::Minutes(59))));
  ASSERT_TRUE(slow->Drain(100));  // it has begun
  // One within its share may take its time.
  const auto modest = Dial(0, /*incarnation=*/78, /*receive_buffer=*/4'096);
  ASSERT_TRUE(modest->SendFrame(
      FrameType::kGet, 2, GetMeta(ids.substr(0, 4 * KeyId::kBytes), kChunk, absl::Minutes(59))));
  // Others are served meanwhile.
  for (int i = 0; i < kChunks; ++i) {
    EXPECT_EQ(Get("chunk " + std::to_string(i), kChunk), ChunkCode::kOk) << message_;
    EXPECT_TRUE(Brought(static_cast<uint64_t>(i), kChunk));
  }
  // Removed: what no reader holds in place is free. The modest one holds 4 MiB and a little.
  RemoveOptions force;
  force.force = true;
  ASSERT_OK(ns_->RemoveAll(force));
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(5));
  ASSERT_OK(admin);
  uint64_t held = 0;
  EXPECT_TRUE(Eventually([&] {
    const auto segments = (*admin)->Segments();
    if (!segments.ok() || segments->segments_size() != 1) return false;
    held = segments->segments(0).allocatable_bytes() - segments->segments(0).free_bytes();
    return held >= 4 * kChunk && held < 5 * kChunk;
  })) << held
      << " bytes are held";
  EXPECT_TRUE(modest->connected() && modest->Drain(2 * kChunk));
}

TEST_F(PeersTest, AReaderThatForgetsItsCallsLosesThemAtTheirDeadline) {
  StartTroublePool(uint64_t{64} << 20, /*stores=*/1, {"stall_timeout=10m", "max_peer_share=1"});
  constexpr uint64_t kChunk = 8 << 20;
  ASSERT_EQ(Put("a", 1, kChunk, Visible()), ChunkCode::kOk);
  const auto slow = Dial(0, /*incarnation=*/77, /*receive_buffer=*/4'096);
  ASSERT_TRUE(slow->SendFrame(FrameType::kGet, 2,
                              GetMeta(std::string(Id("a").view()), kChunk, absl::Seconds(1))));
  ASSERT_TRUE(slow->Drain(100));  // it has begun
  ASSERT_NO_FATAL_FAILURE(ExpectNothingIsLeft());
}

// Each request is half a megabyte of keys, its unsent answer as much, and what it holds more.
TEST_F(PeersTest, UnreadAnswersTakeLittleMemoryOfTheStore) {
  constexpr int kPeers = 10;
  StartTroublePool(uint64_t{64} << 20, /*stores=*/1,
                   {"stall_timeout=10m", "max_peer_share=1", "slow_peer=10m"});
  ASSERT_EQ(Put("a", 1, 4'096, Visible()), ChunkCode::kOk);
  std::string ids;
  for (size_t i = 0; i < kMaxKeysPerRequest; ++i) ids += Id("a").view();
  const std::string meta = GetMeta(ids, 4'096, absl::Minutes(59));
  const int64_t before = ResidentBytes(pid(Store(0)));
  std::vector<std::unique_ptr<RawPeer>> peers;
  std::vector<std::thread> senders;
  for (uint64_t p = 0; p < kPeers; ++p) {
    peers.push_back(Dial(0, 100 + p, 4'096));
    // It blocks when the store reads no more; the test's end cuts it.
    senders.emplace_back([peer = peers.back().get(), &meta] {
      for (uint64_t id = 2; id < 100; ++id) {
        if (!peer->SendFrame(FrameType::kGet, id, meta)) return;
      }
    });
  }
  // Until it grows no more.
  int64_t grown = 0;
  int64_t last = -1;
  for (int calm = 0, looks = 0; calm < 20 && looks < 200; ++looks) {
    Clock::Real().SleepFor(absl::Milliseconds(50));
    grown = ResidentBytes(pid(Store(0))) - before;
    calm = std::abs(grown - last) < (256 << 10) ? calm + 1 : 0;
    last = grown;
  }
  std::cout << "  " << kPeers << " connections that ask and never read take "
            << grown / kPeers / 1024 << " KiB of the store's memory each\n";
  EXPECT_EQ(Get("a", 4'096), ChunkCode::kOk) << message_;
  // Half a meta's limit for requests, two answers and their references; not fifty megabytes.
  EXPECT_LT(grown / kPeers, int64_t{24} << 20);
  Kill(Store(0));  // ends the senders
  for (std::thread& sender : senders) sender.join();
}

// --- idle ones ---

TEST_F(PeersTest, AThousandIdleConnectionsCostLittle) {
  constexpr int kConnections = 1'000;
  StartTroublePool();
  ASSERT_EQ(Put("a", 1, 100'000, Visible()), ChunkCode::kOk);
  for (const int daemon : {kMaster, Store(0)}) {
    const int64_t before = ResidentBytes(pid(daemon));
    const int threads = ThreadCount(pid(daemon));
    std::vector<std::unique_ptr<RawPeer>> idle;
    for (uint64_t i = 0; i < kConnections; ++i) {
      idle.push_back(std::make_unique<RawPeer>(ports(daemon).data));
      ASSERT_TRUE(idle.back()->Handshake(Identity(1'000 + i))) << i;
    }
    const int64_t each = (ResidentBytes(pid(daemon)) - before) / kConnections;
    std::cout << "  an idle connection takes " << each << " bytes of "
              << (daemon == kMaster ? "the master" : "a store") << "\n";
    EXPECT_LT(each, 64 << 10);
    EXPECT_LE(ThreadCount(pid(daemon)), threads + 8);  // gRPC's come and go
    // The daemon serves old and new ones as before.
    EXPECT_EQ(Get("a", 100'000), ChunkCode::kOk) << message_;
    ASSERT_OK_AND_ASSIGN(const auto another, Client::Connect(ConnectOptions()));
    ASSERT_OK_AND_ASSIGN(const auto ns, another->OpenNamespace("test", "v1"));
    const KeyId id = Id("a");
    ASSERT_OK_AND_ASSIGN(const LookupResult found, ns->Lookup({&id, 1}));
    EXPECT_EQ(found.leading_run, 1u);
  }
  ExpectNothingIsLeft();
}

// --- greedy ones ---

TEST_F(PeersTest, LeasesThatNobodyReleasesStopNoPuts) {
  constexpr uint64_t kChunk = 256 << 10;
  StartTroublePool(uint64_t{32} << 20);
  LookupOptions greedy;
  greedy.lease_time = absl::Seconds(60);
  // Everything that is put is leased at once, for the longest time there is.
  int stored = 0;
  uint64_t most = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "chunk " + std::to_string(i);
    const ChunkCode code = Put(key, static_cast<uint64_t>(i), kChunk, Visible());
    stored += code == ChunkCode::kOk ? 1 : 0;
    EXPECT_EQ(code, ChunkCode::kOk) << i << " " << message_;
    const KeyId id = Id(key);
    (void)ns_->Lookup({&id, 1}, greedy);
    if (i % 50 == 49) most = std::max(most, Stats().pool().leased_bytes());
  }
  EXPECT_EQ(stored, 300);  // more than twice what fits
  EXPECT_GT(most, 0u);
  // Half of each store's bytes, no more.
  EXPECT_LE(most, uint64_t{16} << 20);
  EXPECT_GT(Stats().pool().lease_refused(), 0u);
}

// --- nonsense ---

// Where nonsense is sent: a port of this host, or a socket's file.
struct Target {
  std::string name;  // for people
  uint16_t port = 0;
  std::string path = {};
};

class Socket {
 public:
  explicit Socket(const Target& target)
      : fd_(socket(target.path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    timeval patience{.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (target.path.empty()) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(target.port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      good_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    } else {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      if (target.path.size() >= sizeof(address.sun_path)) return;
      std::memcpy(address.sun_path, target.path.c_str(), target.path.size() + 1);
      good_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  bool good() const { return good_; }
  bool Send(std::string_view bytes) const {
    return good_ && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                        static_cast<ssize_t>(bytes.size());
  }

 private:
  int fd_;
  bool good_ = false;
};

// Connection after connection until `stop`, some of which stay open for a while.
void TalkNonsense(const Target& target, std::mt19937_64& random, const std::atomic<bool>& stop,
                  const std::function<void(bool connected)>& spoken) {
  std::vector<std::unique_ptr<Socket>> open;  // slow drips and halves
  const auto noise = [&random](size_t bytes) {
    std::string out(bytes, '\0');
    for (char& c : out) c = static_cast<char>(random());
    return out;
  };
  const std::string hello = transport::RawFrame(FrameType::kHello, 0, noise(100), "");
  while (!stop) {
    auto socket = std::make_unique<Socket>(target);
    const bool connected = socket->good();
    switch (random() % 6) {
      case 0:
        socket->Send(noise(1 + random() % 5'000));
        break;
      case 1:  // half a frame, and silence
        socket->Send(hello.substr(0, random() % hello.size()));
        open.push_back(std::move(socket));
        break;
      case 2: {  // the largest lengths there are
        std::string frame = hello;
        std::memset(frame.data() + 16, 0xFF, 16);
        socket->Send(frame);
        break;
      }
      case 3:
        socket->Send(hello + noise(random() % 300));
        break;
      case 4:
        socket->Send("GET / HTTP/1.1\r\n\r\n");
        break;
      case 5:  // HTTP/2's preface, then noise in its frames
        socket->Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise(200));
        break;
    }
    for (const auto& slow : open) slow->Send(noise(1));
    if (open.size() > 50) open.erase(open.begin(), open.begin() + 25);
    spoken(connected);
    Clock::Real().SleepFor(absl::Milliseconds(1));
  }
}

TEST_F(PeersTest, NonsenseOnEveryPortHarmsNobody) {
  constexpr uint64_t kSeed = 20'260'301;
  SCOPED_TRACE(kSeed);
  KeepLittleOfWhatIsFreed();
  StartTroublePool();
  ASSERT_EQ(Put("a", 1, 300'000, Visible()), ChunkCode::kOk);
  const std::vector<Target> targets = {
      {.name = "the master's data port", .port = ports(kMaster).data},
      {.name = "the master's gRPC port", .port = ports(kMaster).grpc},
      {.name = "the master's HTTP port", .port = ports(kMaster).http},
      {.name = "a store's data port", .port = ports(Store(0)).data},
      {.name = "a store's HTTP port", .port = ports(Store(0)).http},
      {.name = "a store's socket", .path = ports(Store(0)).socket},
      {.name = "another store's data port", .port = ports(Store(1)).data},
  };
  std::vector<int> files;
  std::vector<int64_t> memory;
  for (const int daemon : {kMaster, Store(0), Store(1)}) {
    files.push_back(OpenFiles(pid(daemon)));
    memory.push_back(ResidentBytes(pid(daemon)));
  }
  std::atomic<bool> stop{false};
  std::atomic<int> spoken{0};
  std::vector<std::atomic<int>> heard(targets.size());
  std::vector<std::thread> talkers;
  for (size_t t = 0; t < targets.size(); ++t) {
    talkers.emplace_back([&, t] {
      std::mt19937_64 random(kSeed + t);
      TalkNonsense(targets[t], random, stop, [&](bool connected) {
        heard[t] += connected ? 1 : 0;
        ++spoken;
      });
    });
  }
  // Until there was much of it, and for a while at least.
  int served = 0;
  const MonoTime until = Clock::Real().Mono() + absl::Seconds(3);
  while (Clock::Real().Mono() < until || spoken < 1'000) {
    const std::string key = "b" + std::to_string(served);
    ASSERT_EQ(Put(key, static_cast<uint64_t>(served), 50'000, Visible()), ChunkCode::kOk)
        << message_;
    ASSERT_EQ(Get(key, 50'000), ChunkCode::kOk) << message_;
    ASSERT_TRUE(Brought(static_cast<uint64_t>(served), 50'000));
    ASSERT_EQ(Get("a", 300'000), ChunkCode::kOk) << message_;
    ASSERT_TRUE(Brought(1, 300'000));
    ++served;
  }
  stop = true;
  for (std::thread& talker : talkers) talker.join();
  std::cout << "  " << served << " rounds were served among " << spoken << " senseless peers\n";
  for (size_t t = 0; t < targets.size(); ++t) EXPECT_GT(heard[t], 10) << targets[t].name;
  // Nobody died, and what they took is given back.
  ASSERT_NO_FATAL_FAILURE(AwaitService());
  size_t d = 0;
  for (const int daemon : {kMaster, Store(0), Store(1)}) {
    EXPECT_FALSE(HasEnded(pid(daemon)));
    EXPECT_TRUE(Eventually([&] { return OpenFiles(pid(daemon)) <= files[d] + 20; }))
        << OpenFiles(pid(daemon)) << " files, " << files[d] << " before";
    // gRPC closes connections behind the peers' pace: the master has thousands open for a while, of
    // 15 KiB each. It gives back what they took, but for what lies between blocks in use.
    const int64_t allowed = int64_t{daemon == kMaster ? 128 : 64} << 20;
    int64_t grown = 0;
    EXPECT_TRUE(Eventually([&] {
      grown = ResidentBytes(pid(daemon)) - memory[d];
      return grown < allowed;
    })) << grown / 1024
        << " KiB more than before";
    std::cout << "  daemon " << daemon << " keeps " << grown / 1024 << " KiB\n";
    ++d;
  }
  ExpectNothingIsLeft();
}

// --- clocks ---

TEST_F(PeersTest, JumpsOfTheWallClockChangeNoLeaseAndNoChunk) {
  StartTroublePool();
  for (const char* jump : {"1h", "-1h"}) {
    SCOPED_TRACE(jump);
    // Each daemon's clock jumps a moment after its start, while there is work.
    const std::string fault = std::string("clock.wall:jump=") + jump + ":0:200";
    for (const int daemon : {kMaster, Store(0), Store(1)}) Replace(daemon, {fault});
    ASSERT_NO_FATAL_FAILURE(AwaitService());
    ASSERT_TRUE(Eventually([&] { return client_->OpenNamespace("test", "v1").ok(); }));
    ASSERT_EQ(Put("kept", 1, 100'000, Visible()), ChunkCode::kOk) << message_;
    PutOptions expiring = Visible();
    expiring.expiry = Clock::Real().Wall() + absl::Hours(3);
    ASSERT_EQ(Put("expires later", 2, 100'000, expiring), ChunkCode::kOk) << message_;
    const KeyId id = Id("kept");
    LookupOptions lease;
    lease.lease_time = absl::Seconds(60);
    ASSERT_OK_AND_ASSIGN(const LookupResult leased, ns_->Lookup({&id, 1}, lease));
    ASSERT_EQ(leased.leases.size(), 1u);
    // The clocks are read with every tick; by now they have jumped, or will.
    for (int round = 0; round < 60; ++round) {
      const std::string key = "round " + std::to_string(round);
      ASSERT_EQ(Put(key, static_cast<uint64_t>(round), 50'000, Visible()), ChunkCode::kOk)
          << message_;
      ASSERT_EQ(Get(key, 50'000), ChunkCode::kOk) << message_;
      ASSERT_TRUE(Brought(static_cast<uint64_t>(round), 50'000));
      Clock::Real().SleepFor(absl::Milliseconds(20));
    }
    // The lease still stands, and every store is thought alive.
    EXPECT_EQ(ns_->Remove({&id, 1}).items[0].code, ChunkCode::kFailedPrecondition);
    EXPECT_TRUE(AllServe());
    EXPECT_EQ(Get("expires later", 100'000), ChunkCode::kOk) << message_;
    // And ends when it is released, not before nor later.
    ASSERT_OK(ns_->Release(leased.leases));
    EXPECT_EQ(ns_->Remove({&id, 1}).items[0].code, ChunkCode::kOk);
    ASSERT_NO_FATAL_FAILURE(ExpectNothingIsLeft());
  }
}

}  // namespace
}  // namespace cistern
