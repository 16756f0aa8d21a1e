// Connecting, namespaces, lookups, tickets, removal, forks: against a pool in the test's own
// process.
#include "client/client.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "client/testing/client_fixture.h"

#if defined(__SANITIZE_THREAD__)
#define CISTERN_UNDER_TSAN 1
#elif defined(__has_feature)  // Clang's
#if __has_feature(thread_sanitizer)
#define CISTERN_UNDER_TSAN 1
#endif
#endif

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ClientTest : public ClientFixture {
 protected:
  void Store(std::string_view key, int store = 0, uint16_t shard = 0) {
    pool_.store(store).Add(Name(key, shard), {.bytes = PatternBytes(1, 4'096)});
  }
  std::vector<KeyId> Ids(const std::vector<std::string>& keys) const {
    std::vector<KeyId> ids;
    for (const std::string& key : keys) ids.push_back(Id(key));
    return ids;
  }
};

TEST_F(ClientTest, LookupFindsTheLeadingRunAndLeasesIt) {
  Store("a");
  Store("b", 1);
  Store("d");
  ASSERT_OK_AND_ASSIGN(const LookupResult result, ns_->Lookup(Ids({"a", "b", "c", "d"})));
  EXPECT_EQ(result.leading_run, 2u);
  EXPECT_THAT(result.present, ElementsAre(true, true, false, true));
  EXPECT_THAT(result.leases, SizeIs(1));
  EXPECT_EQ(result.lease_time, absl::Seconds(10));
  ASSERT_THAT(result.store_ids, SizeIs(2));
  EXPECT_EQ(result.store_ids[result.stores[0]], pool_.store(0).id());
  EXPECT_EQ(result.store_ids[result.stores[1]], pool_.store(1).id());
  EXPECT_EQ(result.stores[2], LookupResult::kNoStore);
  EXPECT_OK(ns_->Release(result.leases));
  EXPECT_EQ(pool_.master().released, 1);
  const ClientStats stats = client_->stats();
  EXPECT_EQ(stats.lookup_keys, 4u);
  EXPECT_EQ(stats.lookup_hits, 3u);
}

TEST_F(ClientTest, KeyCountsOnlyWithAllItsShards) {
  Store("a", 0, 4);
  Store("a", 1, 5);
  Store("b", 0, 4);
  LookupOptions options;
  options.shard_first = 4;
  options.shard_count = 2;
  ASSERT_OK_AND_ASSIGN(const LookupResult result, ns_->Lookup(Ids({"a", "b"}), options));
  EXPECT_THAT(result.present, ElementsAre(true, false));
  EXPECT_EQ(result.leading_run, 1u);
  ASSERT_OK_AND_ASSIGN(const std::vector<bool> exists, ns_->Exists(Ids({"a", "b"}), options));
  EXPECT_THAT(exists, ElementsAre(true, false));
  options.shard_count = 4'093;
  EXPECT_THAT(ns_->Lookup(Ids({"a"}), options), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, ManyKeysAreSplitAndMerged) {
  std::vector<KeyId> ids(100'000);
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(ids[i].bytes.data(), &i, sizeof(i));
  // A run of 40,000, which crosses the first split, and one far behind.
  for (size_t i = 0; i < 40'000; ++i) pool_.master().SetLookupAnswer(ids[i], {0});
  pool_.master().SetLookupAnswer(ids[99'999], {1});
  LookupOptions options;
  options.deadline = absl::Seconds(30);
  ASSERT_OK_AND_ASSIGN(const LookupResult result, ns_->Lookup(ids, options));
  EXPECT_EQ(result.leading_run, 40'000u);
  EXPECT_EQ(std::count(result.present.begin(), result.present.end(), true), 40'001);
  EXPECT_TRUE(result.present[99'999]);
  // Where the run has ended no lease is taken.
  EXPECT_THAT(result.leases, SizeIs(2));
  EXPECT_EQ(pool_.master().leases, 2);
  EXPECT_LE(pool_.master().largest_request, 32'768u);
}

TEST_F(ClientTest, StaleMapIsTakenInAndTheCallRepeated) {
  Store("a");
  pool_.master().BumpMap();
  ASSERT_OK_AND_ASSIGN(const LookupResult result, ns_->Lookup(Ids({"a"})));
  EXPECT_EQ(result.leading_run, 1u);
  EXPECT_EQ(pool_.master().lookups, 2);
  ASSERT_OK(ns_->Lookup(Ids({"a"})));
  EXPECT_EQ(pool_.master().lookups, 3);
}

TEST_F(ClientTest, TicketServesAnotherClientWithoutTheMaster) {
  Store("a", 1);
  ASSERT_OK_AND_ASSIGN(const LookupResult found, ns_->Lookup(Ids({"a"})));
  const std::string ticket = found.Serialize();
  const int lookups = pool_.master().lookups;

  Connect(pool_.options());
  used_ = 0;
  ASSERT_OK_AND_ASSIGN(const LookupResult adopted, ns_->Adopt(ticket));
  EXPECT_EQ(adopted.leading_run, 1u);
  EXPECT_EQ(adopted.leases, found.leases);
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kOk);
  EXPECT_EQ(pool_.master().lookups, lookups);

  ASSERT_OK_AND_ASSIGN(const auto other, client_->OpenNamespace("other", "v1"));
  EXPECT_THAT(other->Adopt(ticket), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ns_->Adopt("junk"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ClientTest, PrefetchWarmsTheCache) {
  Store("a");
  ASSERT_OK(ns_->Prefetch(Ids({"a"})));
  EXPECT_EQ(pool_.master().leases, 0);
  EXPECT_EQ(pool_.master().lookups, 1);
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kOk);
  EXPECT_EQ(pool_.master().lookups, 1);
}

TEST_F(ClientTest, RemoveAnswersPerChunk) {
  Store("a");
  Store("b", 1);
  const BatchResult result = ns_->Remove(Ids({"a", "x", "b"}));
  EXPECT_OK(result.status);
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk);
  EXPECT_EQ(result.items[1].code, ChunkCode::kNotFound);
  EXPECT_EQ(result.items[2].code, ChunkCode::kOk);
  EXPECT_EQ(pool_.store(0).size() + pool_.store(1).size(), 0u);
}

TEST_F(ClientTest, NamespacesDoNotSeeEachOther) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  ASSERT_OK_AND_ASSIGN(const auto other, client_->OpenNamespace("other", "v1"));
  EXPECT_NE(*other->Hash("a"), Id("a"));
  EXPECT_NE(other->id(), ns_->id());
  ns_ = other;
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kNotFound);
  EXPECT_EQ(Put("a", std::string(4'096, 'y')), ChunkCode::kOk);
  EXPECT_EQ(Get("a", 4'096).second, std::string(4'096, 'y'));
}

TEST_F(ClientTest, OtherFingerprintIsRefusedWithBothShown) {
  EXPECT_THAT(client_->OpenNamespace("test", "v2"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("fingerprint v1")));
}

TEST_F(ClientTest, KeysHaveOneByteTo4KiB) {
  EXPECT_THAT(ns_->Hash(""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(ns_->Hash(std::string(4'096, 'k')));
  EXPECT_THAT(ns_->Hash(std::string(4'097, 'k')), StatusIs(absl::StatusCode::kInvalidArgument));
  const std::vector<std::string_view> keys = {"a", "b"};
  std::vector<KeyId> ids;
  ASSERT_OK(ns_->HashMany(keys, &ids));
  EXPECT_THAT(ids, ElementsAre(Id("a"), Id("b")));
}

TEST_F(ClientTest, PingAndPoolId) {
  EXPECT_OK(client_->Ping());
  EXPECT_EQ(client_->pool_id(), pool_.store(0).pool_id());
}

TEST_F(ClientTest, UnregisteredBufferIsRefusedAndLayoutsNeedBuffers) {
  const GetItem item = ItemToGet("a", 4'096);
  buffer_ = Buffer();
  EXPECT_EQ(ns_->BatchGet({&item, 1}).items[0].code, ChunkCode::kInvalidArgument);
}

TEST_F(ClientTest, ForkedChildIsToldAtOnceAndTheParentGoesOn) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  const GetItem item = ItemToGet("a", 4'096);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool told = absl::IsFailedPrecondition(ns_->BatchGet({&item, 1}).status) &&
                      absl::IsFailedPrecondition(ns_->Lookup({&item.id, 1}).status()) &&
                      absl::IsFailedPrecondition(client_->Ping());
    client_.reset();  // must neither hang nor touch what the parent uses
#ifdef CISTERN_UNDER_TSAN
    _exit(told ? 0 : 1);  // this sanitizer allows a fork's child no threads
#endif
    // It may connect anew.
    const auto own = Client::Connect(pool_.options());
    if (!own.ok()) _exit(2);
    const auto own_ns = (*own)->OpenNamespace("test", "v1");
    if (!own_ns.ok()) _exit(3);
    const auto found = (*own_ns)->Lookup({&item.id, 1});
    _exit(!told ? 1 : !found.ok() || found->leading_run != 1 ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kOk);
}

// A child that never touches its copy of the client must not keep the parent's connections open:
// their ends are what tells a peer that a call is over.
TEST_F(ClientTest, ConnectionsEndThoughAForkedChildHoldsThem) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  EXPECT_GT(pool_.master().connections() * pool_.store(0).connections(), 0u);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) pause();
  }
  buffer_ = Buffer();
  ns_.reset();
  client_.reset();
  const MonoTime until = Clock::Real().Mono() + absl::Seconds(20);
  while (pool_.master().connections() + pool_.store(0).connections() > 0 &&
         Clock::Real().Mono() < until) {
    Clock::Real().SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(pool_.master().connections(), 0u);
  EXPECT_EQ(pool_.store(0).connections(), 0u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// An engine that has run out of descriptors must not be ended by its cache.
TEST_F(ClientTest, ThreadsCallOnOpenConnectionsWithoutAnyDescriptorLeft) {
  EXPECT_EQ(Put("a", std::string(4'096, 'x')), ChunkCode::kOk);
  EXPECT_EQ(Get("a", 4'096).first, ChunkCode::kOk);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDERR_FILENO);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  // Threads that wait for the first time; two of them for one connection.
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) good += ns_->Lookup(Ids({"a"})).ok() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(good, 40);
}

TEST_F(ClientTest, MasterThatStopsAnsweringIsNamedAtTheDeadline) {
  pool_.master().set_silent(true);
  LookupOptions options;
  options.deadline = absl::Milliseconds(100);
  EXPECT_THAT(
      ns_->Lookup(Ids({"a"}), options),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(pool_.options().master_address)));
}

// A deadline is for the whole call, however many requests it takes.
TEST_F(ClientTest, OneDeadlineForAllRequestsOfACall) {
  std::vector<KeyId> ids(5 * kMaxKeysPerRequest);  // five requests at least
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(ids[i].bytes.data(), &i, sizeof(i));
  const std::vector<LeaseId> leases(5);
  // Each request has time enough of its own.
  pool_.master().set_delay(absl::Milliseconds(250));
  LookupOptions lookup;
  lookup.deadline = absl::Milliseconds(500);
  // Unavailable where the connection that the one before left was not up again.
  const auto late = ::testing::AnyOf(StatusIs(absl::StatusCode::kDeadlineExceeded),
                                     StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(ns_->Lookup(ids, lookup).status(), late);
  EXPECT_THAT(ns_->Exists(ids, lookup).status(), late);
  EXPECT_THAT(ns_->Release(leases, lookup), late);
  RemoveOptions remove;
  remove.deadline = absl::Milliseconds(500);
  EXPECT_THAT(ns_->Remove(ids, remove).status, late);
}

// Calls that are under way, or begin, while the client goes end with a status.
TEST_F(ClientTest, ClosingWhileThreadsCallEndsTheirCalls) {
  EXPECT_EQ(Put("a", std::string(100'000, 'x')), ChunkCode::kOk);
  const std::vector<KeyId> ids = Ids({"a", "b"});
  for (int round = 0; round < 20; ++round) {
    ASSERT_OK_AND_ASSIGN(auto client, Client::Connect(pool_.options()));
    ASSERT_OK_AND_ASSIGN(const auto ns, client->OpenNamespace("test", "v1"));
    std::atomic<int> calling{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<char> memory(100'000);
        auto buffer = client->RegisterBuffer({.data = memory.data(), .bytes = memory.size()});
        const Span span{memory.data(), memory.size()};
        const GetItem item{.id = ids[0], .memory = {.spans = {&span, 1}}};
        ++calling;
        absl::Status status;
        while (status.ok() || absl::IsCancelled(status)) {
          switch (t) {
            case 0:
              status = ns->Lookup(ids).status();
              break;
            case 1:
              status = ns->Exists(ids).status();
              break;
            case 2:
              status = ns->BatchGet({&item, 1}).status;
              break;
            default:
              status = ns->BatchGetAsync({&item, 1}).Take().status;
          }
        }
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
      });
    }
    while (calling < 4) std::this_thread::yield();
    for (int i = 0; i < round * 50; ++i) std::this_thread::yield();
    client.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ClientConnectTest, MasterThatIsNotUpIsWaitedForThenNamed) {
  // A port that was free a moment ago.
  uint16_t port = 0;
  { port = FakePool(0).master().port(); }
  ClientOptions options;
  options.master_address = "127.0.0.1:" + std::to_string(port);
  options.deadline = absl::Milliseconds(300);
  const MonoTime start = Clock::Real().Mono();
  EXPECT_THAT(Client::Connect(options),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options.master_address)));
  const absl::Duration took = Clock::Real().Mono() - start;
  EXPECT_GE(took, absl::Milliseconds(290));
  EXPECT_LT(took, absl::Seconds(2));
  // Lazily it cannot fail; the first call does.
  options.lazy = true;
  ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(options));
  EXPECT_THAT(client->Ping(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ClientConnectTest, MasterThatComesUpLaterIsFound) {
  uint16_t port = 0;
  { port = FakePool(0).master().port(); }
  ClientOptions options;
  options.master_address = "127.0.0.1:" + std::to_string(port);
  options.lazy = true;
  ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(options));
  absl::Status status;
  std::thread caller([&] { status = client->Ping(); });
  std::vector<std::unique_ptr<FakeStore>> no_stores;
  FakeMaster master(&no_stores);
  master.Start("", PoolId{}, port);
  caller.join();
  EXPECT_OK(status);
}

TEST(ClientConnectTest, TokenIsNeeded) {
  TempDir dir;
  WriteFile(dir / "token", std::string(32, 'k'), 0600);
  WriteFile(dir / "wrong", std::string(32, 'w'), 0600);
  WriteFile(dir / "open", std::string(32, 'k'), 0644);
  FakePool pool(1, std::string(32, 'k'));
  ClientOptions options = pool.options();
  options.pool_token_file = dir / "token";
  EXPECT_OK(Client::Connect(options));
  options.pool_token_file = dir / "wrong";
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kPermissionDenied));
  options.pool_token_file = "";
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kPermissionDenied));
  options.pool_token_file = dir / "open";
  EXPECT_THAT(Client::Connect(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chmod 600")));
}

TEST(ClientConnectTest, BadOptionsAreRefused) {
  for (const char* address : {"", "host", "host:", ":7600", "host:0", "host:70000", "::1:7600"}) {
    ClientOptions options;
    options.master_address = address;
    options.lazy = true;
    EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kInvalidArgument)) << address;
  }
  ClientOptions options;
  options.lazy = true;
  options.master_address = "[::1]:7600";
  EXPECT_OK(Client::Connect(options));
  options.connections_per_store = 0;
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kInvalidArgument));
  options.connections_per_store = 1;
  options.rdma.queue_depth = 8;
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ClientConnectTest, RdmaThatIsAskedForWhereThereIsNoneIsRefusedWithTheReason) {
  ClientOptions options;
  options.lazy = true;
  options.wire = Wire::kRdma;
  options.rdma.enabled = false;
  EXPECT_THAT(Client::Connect(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       testing::HasSubstr("RDMA is asked for, but this host does not have it: "
                                          "rdma.enabled is false")));
}

}  // namespace
}  // namespace cistern
