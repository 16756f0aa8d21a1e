// Removals and expiry against real daemons, under load and over restarts.
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/client/pool_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

class RemovalPoolTest : public PoolFixture {
 protected:
  void SetUp() override { StartPool(uint64_t{64} << 20); }

  // Bytes in use in the stores, and chunks in the index.
  bool NothingLeft() const {
    const admin::StatsReply stats = Stats();
    uint64_t used = 0;
    for (const auto& store : stats.stores()) {
      for (const auto& tier : store.tiers()) used += tier.used_bytes();
    }
    return used == 0 && stats.pool().chunk_count() == 0;
  }
  static RemoveOptions Forced() {
    RemoveOptions options;
    options.force = true;
    return options;
  }
};

TEST_F(RemovalPoolTest, RemoveAllTakesWhatWasAcknowledgedAMomentAgo) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Span> spans;
    std::vector<PutItem> items;
    for (int i = 0; i < 16; ++i) spans.push_back({At(static_cast<uint64_t>(i) << 14), 8192});
    for (int i = 0; i < 16; ++i) {
      items.push_back(
          {.id = Id("k" + std::to_string(100 * round + i)), .memory = {.spans = {&spans[i], 1}}});
    }
    PutOptions options;
    options.affinity = static_cast<uint64_t>(round + 1) << 56;
    ASSERT_EQ(ns_->BatchPut(items, options).CountOf(ChunkCode::kOk), 16u);
    ASSERT_OK_AND_ASSIGN(const uint64_t removed, ns_->RemoveAll());
    EXPECT_EQ(removed, 16u) << round;
  }
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
}

TEST_F(RemovalPoolTest, RemoveOfAKeyTakesWhatWasAcknowledgedAMomentAgo) {
  for (int round = 0; round < 50; ++round) {
    const std::string key = "k" + std::to_string(round);
    ASSERT_EQ(Put(key, 1, 5000), ChunkCode::kOk) << message_;
    const KeyId id = Id(key);
    const BatchResult result = ns_->Remove({&id, 1});
    EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << round << ChunkCodeName(result.items[0].code);
    EXPECT_EQ(Get(key, 5000), ChunkCode::kNotFound);
  }
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
}

TEST_F(RemovalPoolTest, WholePoolGoesAtOnceWhateverItsNamespaces) {
  for (int n = 0; n < 5; ++n) {
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("ns" + std::to_string(n), "v1"));
    ASSERT_EQ(Put("k", n, 5000), ChunkCode::kOk);
  }
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(30));
  ASSERT_OK(admin);
  admin::RemoveChunksRequest request;
  request.set_all_in_pool(true);
  const auto reply = (*admin)->RemoveChunks(request);
  ASSERT_OK(reply);
  EXPECT_EQ(reply->removed(), 5u);
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
}

TEST_F(RemovalPoolTest, RemovalsUnderLoadLeaveNothingAndNothingComesBack) {
  constexpr uint64_t kBytes = 32 << 10;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> put{0}, got{0};
  std::vector<std::thread> threads;
  for (uint64_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      const auto client = *Client::Connect(ConnectOptions());
      const auto ns = *client->OpenNamespace("test", "v1");
      const Buffer buffer = *client->AllocateBuffer(2 * kBytes);
      char* const memory = static_cast<char*>(buffer.data());
      const Span from{memory, kBytes};
      const Span into{memory + kBytes, kBytes};
      for (uint64_t i = 0; !over; ++i) {
        const uint64_t seed = 10'000 * w + i % 40;
        const KeyId id = *ns->Hash("k" + std::to_string(seed));
        FillPattern(seed, memory, kBytes);
        const PutItem item{.id = id, .memory = {.spans = {&from, 1}}};
        const ChunkCode code = ns->BatchPut({&item, 1}).items[0].code;
        // In progress: by a put that was answered "present" of what was on its way out, which the
        // master still waits for.
        EXPECT_TRUE(code == ChunkCode::kOk || code == ChunkCode::kPresent ||
                    code == ChunkCode::kInProgress || code == ChunkCode::kResourceExhausted)
            << ChunkCodeName(code);
        put += code == ChunkCode::kOk ? 1 : 0;
        EXPECT_OK(ns->Lookup({&id, 1}).status());
        const GetItem get{.id = id, .memory = {.spans = {&into, 1}}};
        const BatchResult result = ns->BatchGet({&get, 1});
        if (result.items[0].code == ChunkCode::kOk) {
          EXPECT_TRUE(std::string_view(memory + kBytes, kBytes) == PatternBytes(seed, kBytes));
          ++got;
        } else {
          EXPECT_EQ(result.items[0].code, ChunkCode::kNotFound) << result.message;
        }
      }
    });
  }
  for (int round = 0; round < 12; ++round) {
    const uint64_t before = put;
    EXPECT_TRUE(Eventually([&] { return put > before; }));
    if (round % 3 == 0) {
      EXPECT_OK(ns_->RemoveAll(Forced()).status());
    } else {
      std::vector<KeyId> ids;
      for (int i = 0; i < 40; ++i)
        ids.push_back(Id("k" + std::to_string(10'000 * (round % 2) + i)));
      EXPECT_OK(ns_->Remove(ids, Forced()).status);
    }
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(got, 0u);
  ASSERT_OK(ns_->RemoveAll(Forced()).status());
  for (const int store : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(KillStore(store));
    ASSERT_NO_FATAL_FAILURE(StartStoreAgain(store));
  }
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("serving") == 2; }));
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
  EXPECT_NE(Get("k1", kBytes), ChunkCode::kOk);
}

TEST_F(RemovalPoolTest, RemovedNamespaceDoesNotComeBackWithAStoreThatWasAway) {
  PutOptions options = Visible();
  for (int i = 0; i < 8; ++i) {
    options.affinity = static_cast<uint64_t>(i + 1) << 56;  // in both stores
    ASSERT_EQ(Put("k" + std::to_string(i), i, 50'000, options), ChunkCode::kOk) << message_;
  }
  ASSERT_NO_FATAL_FAILURE(KillStore(0));
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("dead") == 1; }));
  const auto all = ns_->RemoveAll(Forced());
  EXPECT_THAT(all, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("away")));
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(30));
  ASSERT_OK(admin);
  admin::RemoveNamespaceRequest remove;
  remove.set_name("test");
  EXPECT_THAT((*admin)->RemoveNamespace(remove),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("away")));
  remove.set_force(true);
  EXPECT_OK((*admin)->RemoveNamespace(remove));
  ASSERT_NO_FATAL_FAILURE(StartStoreAgain(0));
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("serving") == 2; }));
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Get("k" + std::to_string(i), 50'000), ChunkCode::kNotFound);
  }
}

TEST_F(RemovalPoolTest, RemovedNamespaceIsOpenedAnewWithOtherOptions) {
  ASSERT_EQ(Put("k", 1, 5000, Visible()), ChunkCode::kOk);
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(30));
  ASSERT_OK(admin);
  admin::RemoveNamespaceRequest remove;
  remove.set_name("test");
  ASSERT_OK((*admin)->RemoveNamespace(remove));
  ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(ConnectOptions()));
  ASSERT_OK_AND_ASSIGN(ns_, client->OpenNamespace("test", "v1", {.mutable_chunks = true}));
  EXPECT_TRUE(ns_->options().mutable_chunks);
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, client->AllocateBuffer(1 << 20));
  const Span span{buffer.data(), 5000};
  PutOptions options;
  options.replace = true;
  // The stores have let go of the old options, or do so in a moment.
  for (int i = 0; i < 2; ++i) {
    const PutItem item{.id = Id("k"), .memory = {.spans = {&span, 1}}};
    EXPECT_TRUE(Eventually([&] {
      return ns_->BatchPut({&item, 1}, options).items[0].code == ChunkCode::kOk;
    }));
  }
}

TEST_F(RemovalPoolTest, ExpiredChunksFreeTheirBytesWithoutBeingTouched) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("short", "v1", {.ttl = absl::Seconds(1)}));
  PutOptions spread = Visible();
  for (int i = 0; i < 10; ++i) {
    spread.affinity = static_cast<uint64_t>(i + 1) << 56;
    ASSERT_EQ(Put("k" + std::to_string(i), i, 50'000, spread), ChunkCode::kOk) << message_;
  }
  EXPECT_TRUE(Eventually([&] { return NothingLeft(); }));
  EXPECT_EQ(Get("k0", 50'000), ChunkCode::kNotFound);
  const admin::StatsReply stats = Stats();
  uint64_t expired = 0;
  for (const auto& store : stats.stores()) {
    const auto it = store.removed_by_cause().find("expired");
    expired += it == store.removed_by_cause().end() ? 0 : it->second;
  }
  EXPECT_EQ(expired, 10u);
}

TEST_F(RemovalPoolTest, ExpiryOutlivesTheStoreAndIsTheSoonerOfTheTwo) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("long", "v1", {.ttl = absl::Hours(1)}));
  PutOptions soon = Visible();
  soon.expiry = Clock::Real().Wall() + absl::Seconds(4);
  PutOptions later = Visible();
  later.expiry = Clock::Real().Wall() + absl::Hours(48);  // the namespace's hour counts
  ASSERT_EQ(Put("soon", 1, 50'000, soon), ChunkCode::kOk) << message_;
  ASSERT_EQ(Put("later", 2, 50'000, later), ChunkCode::kOk) << message_;
  const auto expiry_of = [&](const std::string& key) -> uint64_t {
    auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(30));
    admin::StatChunkRequest request;
    request.set_namespace_name("long");
    request.set_key(key);
    const auto reply = (*admin)->StatChunk(request);
    return reply.ok() ? reply->chunk().expiry_unix_s() : 0;
  };
  const auto now = static_cast<uint64_t>(absl::ToUnixSeconds(Clock::Real().Wall()));
  EXPECT_LE(expiry_of("later"), now + 3'602);
  EXPECT_GE(expiry_of("later"), now + 3'500);
  for (const int store : {0, 1}) {
    ASSERT_NO_FATAL_FAILURE(KillStore(store));
    ASSERT_NO_FATAL_FAILURE(StartStoreAgain(store));
  }
  EXPECT_TRUE(Eventually([&] { return Get("later", 50'000) == ChunkCode::kOk; })) << message_;
  EXPECT_TRUE(Eventually([&] { return Get("soon", 50'000) == ChunkCode::kNotFound; }));
  EXPECT_TRUE(Eventually([&] { return Stats().pool().chunk_count() == 1; }));
  EXPECT_EQ(Get("later", 50'000), ChunkCode::kOk);
  EXPECT_GT(expiry_of("later"), 0u);
}

}  // namespace
}  // namespace cistern
