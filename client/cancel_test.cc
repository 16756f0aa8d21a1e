// Calls that are cancelled, destroyed or cut off at any moment: their memory is the caller's again.
#include <algorithm>
#include <random>
#include <thread>

#include "base/eventually.h"
#include "client/testing/client_fixture.h"

namespace cistern {
namespace {

constexpr uint64_t kSeed = 20'260'102;

// Over every wire that clients have.
class CancelTest : public ClientFixture, public ::testing::WithParamInterface<Wire> {
 protected:
  void SetUp() override {
    ClientOptions options = pool_.options();
    options.wire = GetParam();
    if (GetParam() == Wire::kShm) pool_.ServeShm(sockets_.path());
    Connect(options);
  }
  // Passes a random little while, so that a call is somewhere on its way.
  void Linger() {
    for (uint64_t turns = random_() % 2'000; turns > 0; --turns) std::this_thread::yield();
  }
  std::mt19937_64 random_{kSeed};
  TempDir sockets_;
};

TEST_P(CancelTest, NoByteLandsAfterAGetHasEnded) {
  SCOPED_TRACE(kSeed);
  constexpr uint64_t kBytes = 8 << 20;
  const std::string bytes = PatternBytes(1, kBytes);
  pool_.store(0).Add(Name("a"), {.bytes = bytes});
  const Memory target = Room(kBytes);
  auto* const memory = static_cast<char*>(target.spans[0].data);
  const std::string untouched(kBytes, '\xEE');
  int cancelled = 0;
  for (int round = 0; round < 30; ++round) {
    const GetItem item{.id = Id("a"), .memory = target};
    const int gets = pool_.store(0).gets;
    auto pending = ns_->BatchGetAsync({&item, 1});
    // As soon as the store has begun, or somewhere on its way.
    ASSERT_TRUE(Eventually([&] { return pool_.store(0).gets != gets; }));
    if (round % 2 == 1) Linger();
    pending.Cancel();
    const ChunkCode code = pending.Take().items[0].code;
    ASSERT_TRUE(code == ChunkCode::kOk || code == ChunkCode::kCancelled) << ChunkCodeName(code);
    if (code == ChunkCode::kOk) {
      ASSERT_TRUE(std::string_view(memory, kBytes) == bytes);
      continue;
    }
    ++cancelled;
    std::memcpy(memory, untouched.data(), kBytes);
    // Other traffic of the same connections flushes what might still come.
    ASSERT_EQ(Get("nothing", 4'096).first, ChunkCode::kNotFound);
    used_ -= 4'096;
    ASSERT_TRUE(std::string_view(memory, kBytes) == untouched) << round;
  }
  EXPECT_GT(cancelled, 0);
}

TEST_P(CancelTest, NoByteIsReadAfterAPutHasEnded) {
  SCOPED_TRACE(kSeed);
  constexpr uint64_t kBytes = 8 << 20;
  const Memory source = Room(kBytes);
  auto* const memory = static_cast<char*>(source.spans[0].data);
  for (int round = 0; round < 12; ++round) {
    const std::string key = "k" + std::to_string(round);
    FillPattern(round, memory, kBytes);
    const PutItem item{.id = Id(key), .memory = source};
    {
      auto pending = ns_->BatchPutAsync({&item, 1});
      Linger();
    }  // cancelled and waited for
    // Ours again: what a store has under the key was read before.
    std::memset(memory, 0xEE, kBytes);
    ASSERT_EQ(Get("nothing", 4'096).first, ChunkCode::kNotFound);
    used_ -= 4'096;
    if (pool_.store(0).Has(Name(key))) {
      const uint64_t used = used_;
      const auto [code, got] = Get(key, kBytes);
      EXPECT_EQ(code, ChunkCode::kOk);
      EXPECT_TRUE(got == PatternBytes(round, kBytes)) << round;
      used_ = used;
    }
  }
}

TEST_P(CancelTest, BufferIsUnregisteredOnlyWhenNoCallUsesIt) {
  constexpr uint64_t kBytes = 4 << 20;
  pool_.store(0).Add(Name("a"), {.bytes = PatternBytes(1, kBytes)});
  for (int round = 0; round < 10; ++round) {
    std::vector<char> memory(kBytes);
    ASSERT_OK_AND_ASSIGN(Buffer buffer,
                         client_->RegisterBuffer({.data = memory.data(), .bytes = kBytes}));
    const Span span{memory.data(), kBytes};
    const GetItem item{.id = Id("a"), .memory = {.spans = {&span, 1}}};
    auto pending = ns_->BatchGetAsync({&item, 1});
    Linger();
    buffer = Buffer();  // waits
    // The call has let go of the memory, so it has its answer.
    EXPECT_TRUE(pending.Wait(absl::Seconds(10)));
    EXPECT_EQ(pending.Take().items[0].code, ChunkCode::kOk);
    EXPECT_TRUE(std::string_view(memory.data(), kBytes) == PatternBytes(1, kBytes));
    EXPECT_EQ(ns_->BatchGet({&item, 1}).items[0].code, ChunkCode::kInvalidArgument);
  }
}

TEST_P(CancelTest, ManyCallsAtOnceAmidStoresThatComeAndGo) {
  SCOPED_TRACE(kSeed);
  constexpr uint64_t kBytes = 1 << 20;
  for (int i = 0; i < 8; ++i) {
    for (const int store : {0, 1}) {
      pool_.store(store).Add(Name("k" + std::to_string(i)), {.bytes = PatternBytes(i, kBytes)});
    }
  }
  std::vector<Memory> targets;
  for (int i = 0; i < 8; ++i) targets.push_back(Room(kBytes));
  for (int round = 0; round < 8; ++round) {
    std::vector<GetItem> items;
    std::vector<Pending<BatchResult>> pending;
    items.reserve(8);
    for (int i = 0; i < 8; ++i) {
      items.push_back({.id = Id("k" + std::to_string(i)), .memory = targets[i]});
      pending.push_back(ns_->BatchGetAsync({&items.back(), 1}));
    }
    if (round % 2 == 0) {
      Linger();
      const uint16_t port = pool_.store(0).port();
      pool_.store(0).Stop();
      pool_.store(0).Start("", port);
    }
    for (int i = 0; i < 8; ++i) {
      if (i % 3 == 0) pending[i].Cancel();
      const ChunkCode code = pending[i].Take().items[0].code;
      ASSERT_TRUE(code == ChunkCode::kOk || (i % 3 == 0 && code == ChunkCode::kCancelled))
          << round << " " << ChunkCodeName(code);
      if (code == ChunkCode::kOk) {
        ASSERT_TRUE(TextOf(targets[i]) == PatternBytes(i, kBytes));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, CancelTest, ::testing::Values(Wire::kTcp));
INSTANTIATE_TEST_SUITE_P(Shm, CancelTest, ::testing::Values(Wire::kShm));

}  // namespace
}  // namespace cistern
