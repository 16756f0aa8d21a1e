// Real daemons and a client by RDMA: what is used when, and what becomes of calls whose peer dies
// or stops half-way.

#include <signal.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/client/pool_fixture.h"
#include "transport/rdma/rdma_testing.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kChunk = 1 << 20;
constexpr uint64_t kPoolBytes = uint64_t{128} << 20;

class RdmaPoolTest : public PoolFixture {
 protected:
  // Ends in a skip where there is no device.
  void Start(Wire wire, int stores = 2, std::vector<std::string> store_set = {}) {
    std::vector<transport::rdma::ChosenPort> ports;
    CISTERN_TEST_PORTS_OR_SKIP(ports);
    wire_ = wire;
    // One device: registering with each takes its time on an emulated processor.
    rdma_.devices = ports[0].device;
    pool::LocalPoolOptions options;
    options.stores = stores;
    options.pool_bytes = kPoolBytes;
    options.store_set = std::move(store_set);
    options.store_set.push_back("rdma.devices=" + ports[0].device);
    StartPool(std::move(options));
  }
  std::vector<Span> SpansAt(uint64_t offset, int chunks) const {
    std::vector<Span> spans;
    for (int i = 0; i < chunks; ++i) {
      spans.push_back({At(offset + static_cast<uint64_t>(i) * kChunk), kChunk});
    }
    return spans;
  }
  uint64_t BytesByRdma() const {
    uint64_t sum = 0;
    const admin::StatsReply stats = Stats();
    for (const auto& store : stats.stores()) {
      for (const auto& [name, bytes] : store.bytes_by_wire()) {
        if (name == "rdma_in" || name == "rdma_out") sum += bytes;
      }
    }
    return sum;
  }
  void MoveScatteredMemory();
  void PutToAStoreThatStops();
  void GetFromAStoreThatStops();
  StoreWire OnlyWire() const {
    const std::vector<StoreWire> wires = client_->wires();
    EXPECT_EQ(wires.size(), 1u);
    return wires.empty() ? StoreWire() : wires[0];
  }
};

// Memory of the caller's own, in pieces of odd sizes: some too short to be worth a place of their
// own.
void RdmaPoolTest::MoveScatteredMemory() {
  const std::string whole = PatternBytes(7, 300'000);
  std::string source = whole;
  std::string target(whole.size(), '\0');
  ASSERT_OK_AND_ASSIGN(const Buffer from,
                       client_->RegisterBuffer(
                           {.data = source.data(), .bytes = source.size(), .remote_write = false}));
  ASSERT_OK_AND_ASSIGN(const Buffer to,
                       client_->RegisterBuffer(
                           {.data = target.data(), .bytes = target.size(), .remote_read = false}));
  // Overlaps: allowed, and given up before the call.
  { ASSERT_OK(client_->RegisterBuffer({.data = target.data() + 100, .bytes = 5'000})); }
  const auto cut = [](std::string& memory) {
    std::vector<Span> spans;
    for (size_t at = 0, n = 1; at < memory.size(); at += n, n = n * 3 % 40'009 + 1) {
      n = std::min(n, memory.size() - at);
      spans.push_back({memory.data() + at, n});
    }
    return spans;
  };
  const std::vector<Span> out = cut(source);
  const std::vector<Span> in = cut(target);
  const PutItem put{.id = Id("scattered"), .memory = {.spans = out}};
  const BatchResult was_put = ns_->BatchPut({&put, 1});
  ASSERT_EQ(was_put.items[0].code, ChunkCode::kOk) << was_put.message;
  const GetItem get{.id = Id("scattered"), .memory = {.spans = in}};
  const BatchResult was_got = ns_->BatchGet({&get, 1});
  ASSERT_EQ(was_got.items[0].code, ChunkCode::kOk) << was_got.message;
  EXPECT_TRUE(target == whole);
}

TEST_F(RdmaPoolTest, CarriesWhatIsPutAndGot) {
  Start(Wire::kRdma);
  if (IsSkipped() || HasFatalFailure()) return;
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{65536}, kChunk, 5 * kChunk + 4096}) {
    const std::string key = absl::StrCat("c", bytes);
    ASSERT_EQ(Put(key, bytes, bytes), ChunkCode::kOk) << message_;
    ASSERT_EQ(Get(key, bytes), ChunkCode::kOk) << message_;
    EXPECT_TRUE(Brought(bytes, bytes)) << bytes;
    EXPECT_TRUE(last_.verified);
  }
  for (const StoreWire& wire : client_->wires()) EXPECT_EQ(wire.wire, "rdma") << wire.why;
  const admin::StatsReply stats = Stats();
  for (const auto& store : stats.stores()) {
    EXPECT_THAT(store.wires(), ::testing::ElementsAre("tcp", "shm", "rdma"));
  }
  EXPECT_TRUE(Eventually([&] { return BytesByRdma() > 12 * kChunk; }));
  MoveScatteredMemory();
  // Where any wire will do, shared memory goes first.
  wire_ = Wire::kAuto;
  ASSERT_OK_AND_ASSIGN(client_, Client::Connect(ConnectOptions()));
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
  ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
  ASSERT_EQ(Put("a", 1, kChunk), ChunkCode::kOk) << message_;
  EXPECT_EQ(OnlyWire().wire, "shm");
}

TEST_F(RdmaPoolTest, IsTakenWhereSharedMemoryIsNotToBeHadAndSaysWhy) {
  Start(Wire::kAuto, /*stores=*/1, {"shm.enabled=false"});
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(Put("a", 1, kChunk), ChunkCode::kOk) << message_;  // by either
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Get("a", kChunk), ChunkCode::kOk) << message_;
    return OnlyWire().wire == "rdma";
  }));
  EXPECT_THAT(OnlyWire().why, HasSubstr("offers no shared memory"));
  const uint64_t before = BytesByRdma();
  ASSERT_EQ(Get("a", kChunk), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(1, kChunk));
  EXPECT_TRUE(Eventually([&] { return BytesByRdma() >= before + kChunk; }));
}

TEST_F(RdmaPoolTest, StoreWithoutItIsReachedByTcpOrRefused) {
  Start(Wire::kAuto, /*stores=*/1, {"shm.enabled=false", "rdma.enabled=false"});
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(Put("a", 1, kChunk), ChunkCode::kOk) << message_;
  EXPECT_EQ(OnlyWire().wire, "tcp");
  EXPECT_THAT(OnlyWire().why, HasSubstr("offers no RDMA"));
  wire_ = Wire::kRdma;
  EXPECT_THAT(Client::Connect(ConnectOptions()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("RDMA is asked for")));
}

TEST_F(RdmaPoolTest, KilledStoreEndsItsCallsAndAnotherOneServes) {
  Start(Wire::kRdma, /*stores=*/2);
  if (IsSkipped() || HasFatalFailure()) return;
  constexpr int kChunks = 24;
  const std::vector<Span> spans = SpansAt(0, kChunks);
  std::vector<PutItem> items;
  for (int i = 0; i < kChunks; ++i) {
    FillPattern(static_cast<uint64_t>(i), spans[static_cast<size_t>(i)].data, kChunk);
    items.push_back(
        {.id = Id(absl::StrCat("c", i)), .memory = {.spans = {&spans[static_cast<size_t>(i)], 1}}});
  }
  std::thread killer([&] {
    Clock::Real().SleepFor(absl::Milliseconds(60));
    kill(store_pid(0), SIGKILL);
  });
  PutOptions options;
  options.deadline = absl::Seconds(10);
  const BatchResult result = ns_->BatchPut(items, options);
  killer.join();
  // The memory is the caller's again.
  std::memset(At(0), 0x5A, kChunks * kChunk);
  // What was put is there, or its store is not: never wrong.
  for (int i = 0; i < kChunks; ++i) {
    GetOptions get;
    get.deadline = absl::Seconds(5);
    const ChunkCode code = Get(absl::StrCat("c", i), kChunk, get);
    if (code == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(static_cast<uint64_t>(i), kChunk)) << i;
    }
  }
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("serving") == 1; }));
  ASSERT_TRUE(Eventually([&] { return Put("after", 99, kChunk) == ChunkCode::kOk; })) << message_;
  EXPECT_EQ(Get("after", kChunk), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(99, kChunk));
}

TEST_F(RdmaPoolTest, KilledClientLeavesNothingInTheStore) {
  Start(Wire::kRdma, /*stores=*/1);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(Put("mine", 1, kChunk), ChunkCode::kOk) << message_;
  constexpr uint64_t kOwn = 3;  // of this client, at most
  const auto connections = [&]() -> uint64_t { return Stats().stores(0).connections(); };
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK_AND_ASSIGN(const auto putter,
                         pool::ChildProcess::Start(
                             {.name = "putter",
                              .argv = {"tests/integration/client/putter", pool_->connection().data,
                                       pool_->connection().token_file, "8388608", "rdma"},
                              .log_path = pool_->dir() + "/putter.log"},
                             Clock::Real()));
    const uint64_t before = BytesByRdma();
    ASSERT_TRUE(Eventually([&] { return BytesByRdma() > before + 2 * kChunk; }))
        << putter->LogTail();
    putter->Signal(SIGKILL);
    ASSERT_TRUE(putter->WaitFor(absl::Seconds(10)));
    EXPECT_TRUE(Eventually([&] { return connections() <= kOwn; })) << connections();
  }
  EXPECT_OK(pool_->CheckAlive());
  EXPECT_EQ(Get("mine", kChunk), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(1, kChunk));
}

// The store goes on only after each call has returned: that it returns is the deadline's doing.
void RdmaPoolTest::PutToAStoreThatStops() {
  constexpr int kChunks = 8;
  const std::vector<Span> spans = SpansAt(0, kChunks);
  int unfinished = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<PutItem> items;
    for (int i = 0; i < kChunks; ++i) {
      FillPattern(static_cast<uint64_t>(round * 100 + i), spans[static_cast<size_t>(i)].data,
                  kChunk);
      items.push_back({.id = Id(absl::StrCat("r", round, "c", i)),
                       .memory = {.spans = {&spans[static_cast<size_t>(i)], 1}}});
    }
    std::thread freezer([&] {
      Clock::Real().SleepFor(absl::Milliseconds(8 * round));
      kill(store_pid(0), SIGSTOP);
    });
    PutOptions options;
    options.deadline = absl::Milliseconds(400);
    const BatchResult result = ns_->BatchPut(items, options);
    std::memset(At(0), 0x5A, kChunks * kChunk);
    freezer.join();
    kill(store_pid(0), SIGCONT);
    for (int i = 0; i < kChunks; ++i) {
      const bool put = result.items[static_cast<size_t>(i)].code == ChunkCode::kOk;
      unfinished += put ? 0 : 1;
      const ChunkCode got = Get(absl::StrCat("r", round, "c", i), kChunk);
      if (got == ChunkCode::kOk) {
        EXPECT_TRUE(Brought(static_cast<uint64_t>(round * 100 + i), kChunk)) << round << " " << i;
      } else {
        EXPECT_FALSE(put) << round << " " << i << ": " << ChunkCodeName(got) << " " << message_;
      }
    }
  }
  EXPECT_GT(unfinished, 0);
}

void RdmaPoolTest::GetFromAStoreThatStops() {
  constexpr int kChunks = 8;
  for (int i = 0; i < kChunks; ++i) {
    ASSERT_EQ(Put(absl::StrCat("c", i), static_cast<uint64_t>(i), kChunk), ChunkCode::kOk);
  }
  const uint64_t target = kBufferBytes / 2;
  const std::vector<Span> spans = SpansAt(target, kChunks);
  int unfinished = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<GetItem> items;
    for (int i = 0; i < kChunks; ++i) {
      items.push_back({.id = Id(absl::StrCat("c", i)),
                       .memory = {.spans = {&spans[static_cast<size_t>(i)], 1}}});
    }
    std::thread freezer([&] {
      Clock::Real().SleepFor(absl::Milliseconds(8 * round));
      kill(store_pid(0), SIGSTOP);
    });
    GetOptions options;
    options.deadline = absl::Milliseconds(400);
    const BatchResult result = ns_->BatchGet(items, options);
    for (int i = 0; i < kChunks; ++i) {
      if (result.items[static_cast<size_t>(i)].code == ChunkCode::kOk) {
        EXPECT_EQ(std::memcmp(spans[static_cast<size_t>(i)].data,
                              PatternBytes(static_cast<uint64_t>(i), kChunk).data(), kChunk),
                  0);
      } else {
        ++unfinished;
      }
    }
    std::memset(At(target), 0x5A, kChunks * kChunk);
    freezer.join();
    kill(store_pid(0), SIGCONT);
    // What it still had to post it has posted when it answers again.
    ASSERT_EQ(Put(absl::StrCat("r", round), 1, 4096), ChunkCode::kOk) << message_;
    EXPECT_EQ(std::string_view(At(target), kChunks * kChunk), std::string(kChunks * kChunk, 0x5A))
        << round;
  }
  EXPECT_GT(unfinished, 0);
}

TEST_F(RdmaPoolTest, StoppedStoreKeepsNoCallAndTouchesNothingLater) {
  Start(Wire::kRdma, /*stores=*/1);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(Put("warm", 1, kChunk), ChunkCode::kOk) << message_;
  ASSERT_NO_FATAL_FAILURE(PutToAStoreThatStops());
  ASSERT_NO_FATAL_FAILURE(GetFromAStoreThatStops());
}

}  // namespace
}  // namespace cistern
