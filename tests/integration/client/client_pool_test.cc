// The client library against real daemons.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/integration/client/pool_fixture.h"
#include "tools/pool/child_process.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

// Whether each of a process's threads is: the signal's sender does not wait for that.
bool Stopped(pid_t pid) {
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) return false;  // it ended meanwhile
    // "pid (name) state ...": the name may hold anything.
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat.substr(name_end + 2, 1) != "T") return false;
  }
  return true;
}

class ClientPoolTest : public PoolFixture {
 protected:
  void SetUp() override { StartPool(uint64_t{512} << 20); }
};

TEST_F(ClientPoolTest, SizesFrom4KiBTo64MiBComeBackVerified) {
  uint64_t seed = 0;
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{4097}, uint64_t{65'536}, uint64_t{1} << 20,
                               (uint64_t{1} << 20) + 1, uint64_t{5'000'001}, uint64_t{64} << 20}) {
    const std::string key = "size " + std::to_string(bytes);
    ASSERT_EQ(Put(key, ++seed, bytes), ChunkCode::kOk) << bytes << " " << message_;
    ASSERT_EQ(Get(key, bytes), ChunkCode::kOk) << bytes << " " << message_;
    EXPECT_TRUE(last_.verified);
    EXPECT_TRUE(Brought(seed, bytes)) << bytes;
  }
}

// Twenty in a row: a lookup that only looked would come before the store's report each time.
TEST_F(ClientPoolTest, OwnLookupsSeeAPutAtOnce) {
  int n = 0;
  int in_a_row = 0;
  EXPECT_TRUE(Eventually([&] {
    const std::string key = "own " + std::to_string(n++);
    EXPECT_EQ(Put(key, 1, 4096), ChunkCode::kOk) << message_;
    const KeyId ids[] = {Id(key)};
    const auto found = ns_->Lookup(ids);
    EXPECT_OK(found);
    in_a_row = found.ok() && found->leading_run == 1 && !found->leases.empty() ? in_a_row + 1 : 0;
    return in_a_row == 20;
  }));
}

TEST_F(ClientPoolTest, SixtyFourUnalignedSpans) {
  constexpr uint64_t kPiece = 16'411;  // a prime
  std::vector<Span> from;
  std::vector<Span> into;
  std::string text;
  for (uint64_t i = 0; i < 64; ++i) {
    from.push_back({At(1 + i * (kPiece + 7)), kPiece});
    into.push_back({At(kBufferBytes / 2 + 3 + (63 - i) * (kPiece + 5)), kPiece});  // backwards
    FillPattern(i, from.back().data, kPiece);
    text += PatternBytes(i, kPiece);
  }
  const PutItem put{.id = Id("spans"), .memory = {.spans = from}};
  ASSERT_EQ(ns_->BatchPut({&put, 1}).items[0].code, ChunkCode::kOk);
  const GetItem get{.id = Id("spans"), .memory = {.spans = into}};
  ASSERT_EQ(ns_->BatchGet({&get, 1}).items[0].code, ChunkCode::kOk);
  std::string got;
  for (const Span& span : into) got.append(static_cast<char*>(span.data), span.bytes);
  EXPECT_TRUE(got == text);
}

TEST_F(ClientPoolTest, LayoutUnitsThereAndBack) {
  constexpr uint64_t kPiece = 8192;
  constexpr uint32_t kUnits = 8;
  Layout layout;
  for (uint64_t l = 0; l < 32; ++l) layout.bases.push_back(At(l * kPiece * kUnits));
  layout.unit_stride_bytes = kPiece;
  layout.piece_bytes = kPiece;
  layout.unit_count = kUnits;
  ASSERT_OK_AND_ASSIGN(const LayoutId id, client_->RegisterLayout(layout));
  FillPattern(1, At(0), 32 * kPiece * kUnits);
  std::vector<PutItem> puts;
  std::vector<GetItem> gets;
  std::string before(At(0), 32 * kPiece * kUnits);
  for (uint32_t u = 0; u < kUnits; ++u) {
    puts.push_back({.id = Id("u" + std::to_string(u)), .memory = {.layout = id, .unit = u}});
    gets.push_back({.id = Id("u" + std::to_string(u)), .memory = {.layout = id, .unit = u}});
  }
  ASSERT_EQ(ns_->BatchPut(puts).CountOf(ChunkCode::kOk), kUnits);
  std::memset(At(0), 0, before.size());
  ASSERT_EQ(ns_->BatchGet(gets).CountOf(ChunkCode::kOk), kUnits);
  EXPECT_TRUE(std::string_view(At(0), before.size()) == before);
}

TEST_F(ClientPoolTest, RangesAndRunsOfParts) {
  constexpr uint64_t kBytes = 3'000'000;
  PutOptions options;
  options.part_bytes = 65'536;
  ASSERT_EQ(Put("parts", 5, kBytes, options), ChunkCode::kOk);
  const std::string text = PatternBytes(5, kBytes);
  const std::vector<Span> spans = {{At(kBufferBytes / 2), 100'000},
                                   {At(kBufferBytes / 2 + (1 << 20)), 131'072}};
  std::vector<GetItem> items = {{.id = Id("parts"), .memory = {.spans = {&spans[0], 1}}},
                                {.id = Id("parts"), .memory = {.spans = {&spans[1], 1}}}};
  items[0].range_offset = 1'234'567;
  items[0].range_bytes = 100'000;
  items[1].first_part = 7;
  items[1].part_count = 2;
  const BatchResult result = ns_->BatchGet(items);
  ASSERT_EQ(result.CountOf(ChunkCode::kOk), 2u) << result.message;
  EXPECT_FALSE(result.items[0].verified);
  EXPECT_TRUE(result.items[1].verified);
  EXPECT_TRUE(std::string_view(At(kBufferBytes / 2), 100'000) == text.substr(1'234'567, 100'000));
  EXPECT_TRUE(std::string_view(At(kBufferBytes / 2 + (1 << 20)), 131'072) ==
              text.substr(7 * 65'536, 131'072));
}

TEST_F(ClientPoolTest, PresentPutAndDoublesCostNoBytes) {
  constexpr uint64_t kBytes = 1 << 20;
  ASSERT_EQ(Put("a", 1, kBytes, Visible()), ChunkCode::kOk);
  const auto put_bytes = [&] {
    uint64_t bytes = 0;
    const admin::StatsReply stats = Stats();
    for (const auto& store : stats.stores()) bytes += store.put_bytes();
    return bytes;
  };
  ASSERT_TRUE(Eventually([&] { return put_bytes() == kBytes; }));
  EXPECT_EQ(Put("a", 1, kBytes), ChunkCode::kPresent);
  // Twice in one batch: put once, both answered.
  FillPattern(2, At(0), kBytes);
  const Span span{At(0), kBytes};
  const std::vector<PutItem> items(2, {.id = Id("b"), .memory = {.spans = {&span, 1}}});
  EXPECT_EQ(ns_->BatchPut(items).CountOf(ChunkCode::kOk), 2u);
  ASSERT_TRUE(Eventually([&] { return put_bytes() == 2 * kBytes; }));
}

TEST_F(ClientPoolTest, WrongLengthNamesTheRealOne) {
  ASSERT_EQ(Put("a", 1, 10'000), ChunkCode::kOk);
  EXPECT_EQ(Get("a", 20'000), ChunkCode::kInvalidArgument);
  EXPECT_EQ(last_.length, 10'000u);
}

TEST_F(ClientPoolTest, AMillionKeysInOneLookup) {
  ASSERT_EQ(Put("first", 1, 4096, Visible()), ChunkCode::kOk);
  ASSERT_EQ(Put("last", 2, 4096, Visible()), ChunkCode::kOk);
  std::vector<KeyId> ids(1'000'000);
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t mixed = i * 0x9E3779B97F4A7C15;
    std::memcpy(ids[i].bytes.data(), &mixed, sizeof(mixed));
  }
  ids.front() = Id("first");
  ids.back() = Id("last");
  LookupOptions options;
  options.deadline = absl::Seconds(60);
  ASSERT_OK_AND_ASSIGN(const LookupResult result, ns_->Lookup(ids, options));
  EXPECT_EQ(result.leading_run, 1u);
  EXPECT_EQ(std::count(result.present.begin(), result.present.end(), true), 2);
  EXPECT_TRUE(result.present.back());
  ASSERT_OK_AND_ASSIGN(const std::vector<bool> exists, ns_->Exists(ids, options));
  EXPECT_EQ(std::count(exists.begin(), exists.end(), true), 2);
}

TEST_F(ClientPoolTest, OtherFingerprintIsRefusedWithBothShown) {
  EXPECT_THAT(client_->OpenNamespace("test", "v2"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(HasSubstr("v1"), HasSubstr("v2"))));
}

TEST_F(ClientPoolTest, NamespaceOptionsAreTheFirstOpeners) {
  ASSERT_OK(client_->OpenNamespace("options", "f", {.part_bytes = 65'536}));
  ASSERT_OK_AND_ASSIGN(const auto again, client_->OpenNamespace("options", "f"));
  EXPECT_EQ(again->options().part_bytes, 65'536u);
}

TEST_F(ClientPoolTest, WrongTokenIsRefused) {
  TempDir dir;
  WriteFile(dir / "token", std::string(64, 'w'), 0600);
  ClientOptions options = ConnectOptions();
  options.pool_token_file = dir / "token";
  EXPECT_THAT(Client::Connect(options), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(ClientPoolTest, TicketServesAnotherProcess) {
  ASSERT_EQ(Put("ticket", 9, 300'000, Visible()), ChunkCode::kOk);
  const KeyId id = Id("ticket");
  ASSERT_OK_AND_ASSIGN(const LookupResult found, ns_->Lookup({&id, 1}));
  TempDir dir;
  WriteFile(dir / "ticket", found.Serialize());
  ASSERT_OK_AND_ASSIGN(
      const auto reader,
      pool::ChildProcess::Start(
          {.name = "reader",
           .argv = {"tests/integration/client/ticket_reader", pool_->connection().data,
                    pool_->connection().token_file, dir / "ticket", "ticket", "9", "300000"},
           .log_path = dir / "log"},
          Clock::Real()));
  ASSERT_TRUE(reader->WaitFor(absl::Seconds(20)));
  EXPECT_EQ(reader->exit_code(), 0) << reader->LogTail();
}

TEST_F(ClientPoolTest, CancelEndsSoonAndThePoolGoesOn) {
  ASSERT_EQ(Put("a", 1, 64 << 20), ChunkCode::kOk);
  const Span span{At(kBufferBytes / 2), 64 << 20};
  const GetItem item{.id = Id("a"), .memory = {.spans = {&span, 1}}};
  auto pending = ns_->BatchGetAsync({&item, 1});
  pending.Cancel();
  const ChunkCode code = pending.Take().items[0].code;
  EXPECT_TRUE(code == ChunkCode::kCancelled || code == ChunkCode::kOk) << ChunkCodeName(code);
  EXPECT_EQ(Get("a", 64 << 20), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, 64 << 20));
}

TEST_F(ClientPoolTest, StoreKilledMidBatchAndTheRestGoesElsewhere) {
  // Enough for both stores; one of them dies while the bytes move.
  std::vector<Span> spans;
  std::vector<PutItem> items;
  spans.reserve(64);
  for (int i = 0; i < 64; ++i) {
    spans.push_back({At(static_cast<uint64_t>(i) << 20), 1 << 20});
    FillPattern(i, spans.back().data, 1 << 20);
    items.push_back({.id = Id("k" + std::to_string(i)), .memory = {.spans = {&spans.back(), 1}}});
  }
  PutOptions options;
  options.deadline = absl::Seconds(15);
  auto pending = ns_->BatchPutAsync(items, options);
  kill(store_pid(0), SIGKILL);
  const BatchResult result = pending.Take();
  EXPECT_EQ(result.CountOf(ChunkCode::kOk) + result.CountOf(ChunkCode::kPresent), 64u)
      << result.message << " " << ChunkCodeName(result.items[0].code);
  // What the living store has is whole; what died is a miss or unavailable, soon.
  int good = 0;
  for (int i = 0; i < 64; ++i) {
    const ChunkCode code = Get("k" + std::to_string(i), 1 << 20);
    if (code == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(i, 1 << 20));
      ++good;
    } else {
      EXPECT_TRUE(code == ChunkCode::kNotFound || code == ChunkCode::kUnavailable)
          << ChunkCodeName(code);
    }
  }
  EXPECT_GT(good, 0);
}

TEST_F(ClientPoolTest, StoppedStoreEndsCallsAtTheirDeadline) {
  ASSERT_EQ(Put("a", 1, 1 << 20), ChunkCode::kOk);
  for (const int store : {0, 1}) {
    kill(store_pid(store), SIGSTOP);
    ASSERT_TRUE(Eventually([&] { return Stopped(store_pid(store)); }));
  }
  GetOptions get;
  get.deadline = absl::Milliseconds(300);
  const MonoTime start = Clock::Real().Mono();
  const ChunkCode code = Get("a", 1 << 20, get);
  const absl::Duration took = Clock::Real().Mono() - start;
  for (const int store : {0, 1}) kill(store_pid(store), SIGCONT);
  EXPECT_TRUE(code == ChunkCode::kDeadlineExceeded || code == ChunkCode::kUnavailable)
      << ChunkCodeName(code);
  // 150 ms after it on a quiet host; far from the default of 5 s on a busy one.
  EXPECT_LT(took, absl::Seconds(2));
  EXPECT_TRUE(Eventually([&] { return Get("a", 1 << 20) == ChunkCode::kOk; })) << message_;
}

TEST_F(ClientPoolTest, MasterKilledIsNamedAndGetsGoOn) {
  ASSERT_EQ(Put("a", 1, 100'000), ChunkCode::kOk);
  kill(pool_->pids()[0], SIGKILL);
  // The place is known: the master is not asked.
  EXPECT_EQ(Get("a", 100'000), ChunkCode::kOk) << message_;
  LookupOptions options;
  options.deadline = absl::Milliseconds(300);
  const KeyId id = Id("a");
  const auto lookup = ns_->Lookup({&id, 1}, options);
  EXPECT_FALSE(lookup.ok());
  EXPECT_THAT(std::string(lookup.status().message()), HasSubstr(pool_->connection().data));
}

TEST_F(ClientPoolTest, RestartedMasterIsFoundAndHasTheChunksBack) {
  std::vector<KeyId> ids;
  for (int i = 0; i < 16; ++i) {
    const std::string key = "k" + std::to_string(i);
    PutOptions options = Visible();
    options.affinity = static_cast<uint64_t>(i) << 56;  // in both stores
    ASSERT_EQ(Put(key, i, 4'000'000, options), ChunkCode::kOk);
    ids.push_back(Id(key));
  }
  ASSERT_OK_AND_ASSIGN(const ctl::Endpoints at,
                       ctl::ReadEndpointsFile(pool_->master_endpoints_file()));
  ASSERT_OK_AND_ASSIGN(const ctl::HostPort data, ctl::SplitHostPort(at.data));
  ASSERT_OK_AND_ASSIGN(const ctl::HostPort grpc, ctl::SplitHostPort(at.grpc));
  kill(pool_->pids()[0], SIGKILL);
  ASSERT_TRUE(Eventually([&] { return !pool_->CheckAlive().ok(); }));
  ASSERT_OK_AND_ASSIGN(
      const auto master,
      pool::ChildProcess::Start(
          {.name = "master again",
           .argv = {"master/cistern-master", "--config", pool_->dir() + "/master.toml", "--set",
                    "data_port=" + data.port, "--set", "grpc_port=" + grpc.port},
           .log_path = pool_->dir() + "/master-again.log"},
          Clock::Real()));
  // The same client: it connects again by itself, and takes in the stores as they come back.
  ASSERT_TRUE(Eventually([&] {
    const auto found = ns_->Lookup(ids);
    return found.ok() && found->leading_run == 16;
  })) << master->LogTail();
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(Get("k" + std::to_string(i), 4'000'000), ChunkCode::kOk) << i << " " << message_;
    EXPECT_TRUE(Brought(i, 4'000'000));
  }
  EXPECT_EQ(Put("new", 99, 100'000), ChunkCode::kOk) << message_;
  EXPECT_TRUE(master->Stop(absl::Seconds(10)));
}

TEST_F(ClientPoolTest, ClientThatDiesMidPutLeavesNothingBehind) {
  constexpr uint64_t kBytes = 4'000'000;
  const auto stored = [&] {
    uint64_t chunks = 0;
    const admin::StatsReply stats = Stats();
    for (const auto& store : stats.stores()) chunks += store.put_chunks();
    return chunks;
  };
  for (uint64_t round = 0; round < 3; ++round) {
    const uint64_t before = stored();
    ASSERT_OK_AND_ASSIGN(const auto putter,
                         pool::ChildProcess::Start(
                             {.name = "putter",
                              .argv = {"tests/integration/client/putter", pool_->connection().data,
                                       pool_->connection().token_file, std::to_string(kBytes)},
                              .log_path = pool_->dir() + "/putter.log"},
                             Clock::Real()));
    // In the midst of one that follows the first few (the first rounds' are present, then).
    ASSERT_TRUE(Eventually([&] { return stored() > before + 2; })) << putter->LogTail();
    putter->Signal(SIGKILL);
    ASSERT_TRUE(putter->WaitFor(absl::Seconds(10)));
  }
  // What there is, is whole.
  int whole = 0;
  for (int i = 0; i < 200; ++i) {
    const ChunkCode code = Get("dying " + std::to_string(i), kBytes);
    if (code == ChunkCode::kNotFound) continue;
    ASSERT_EQ(code, ChunkCode::kOk) << i << " " << message_;
    ASSERT_TRUE(Brought(i, kBytes)) << i;
    ++whole;
  }
  EXPECT_GT(whole, 2);
  // And when it is removed, every byte of the segments is free again.
  RemoveOptions force;
  force.force = true;
  ASSERT_OK(ns_->RemoveAll(force));
  auto admin = ctl::AdminClient::Make(pool_->connection(), absl::Seconds(5));
  ASSERT_OK(admin);
  EXPECT_TRUE(Eventually([&] {
    const auto segments = (*admin)->Segments();
    return segments.ok() && segments->segments_size() == 2 &&
           std::all_of(segments->segments().begin(), segments->segments().end(),
                       [](const admin::SegmentStats& s) {
                         return s.free_bytes() == s.allocatable_bytes() && s.headers_used() == 0;
                       });
  }));
  EXPECT_EQ(Stats().pool().chunk_count(), 0u);
}

TEST_F(ClientPoolTest, RemoveKeepsWhatIsLeasedUnlessForced) {
  ASSERT_EQ(Put("a", 1, 10'000, Visible()), ChunkCode::kOk);
  ASSERT_EQ(Put("b", 2, 10'000, Visible()), ChunkCode::kOk);
  const std::vector<KeyId> ids = {Id("a"), Id("b"), Id("c")};
  ASSERT_OK_AND_ASSIGN(const LookupResult lease, ns_->Lookup({&ids[0], 1}));
  ASSERT_EQ(lease.leases.size(), 1u);
  BatchResult result = ns_->Remove(ids);
  EXPECT_OK(result.status);
  EXPECT_EQ(result.items[0].code, ChunkCode::kFailedPrecondition);
  EXPECT_EQ(result.items[1].code, ChunkCode::kOk);
  EXPECT_EQ(result.items[2].code, ChunkCode::kNotFound);
  EXPECT_EQ(Get("b", 10'000), ChunkCode::kNotFound);
  EXPECT_EQ(Get("a", 10'000), ChunkCode::kOk);
  RemoveOptions force;
  force.force = true;
  result = ns_->Remove({&ids[0], 1}, force);
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_EQ(Get("a", 10'000), ChunkCode::kNotFound);
}

TEST_F(ClientPoolTest, ReleaseEndsALease) {
  ASSERT_EQ(Put("a", 1, 10'000, Visible()), ChunkCode::kOk);
  const KeyId id = Id("a");
  ASSERT_OK_AND_ASSIGN(const LookupResult lease, ns_->Lookup({&id, 1}));
  ASSERT_OK(ns_->Release(lease.leases));
  EXPECT_OK(ns_->Release(lease.leases));  // ended already: no error
  EXPECT_EQ(ns_->Remove({&id, 1}).items[0].code, ChunkCode::kOk);
}

TEST_F(ClientPoolTest, RemoveAllLeavesNothing) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Put("k" + std::to_string(i), i, 50'000, Visible()), ChunkCode::kOk);
  }
  RemoveOptions options;
  options.force = true;
  ASSERT_OK_AND_ASSIGN(const uint64_t removed, ns_->RemoveAll(options));
  EXPECT_EQ(removed, 20u);
  const auto stats = Stats();
  EXPECT_EQ(stats.pool().chunk_count(), 0u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Get("k" + std::to_string(i), 50'000), ChunkCode::kNotFound);
  }
}

class SmallPoolTest : public PoolFixture {
 protected:
  void SetUp() override { StartPool(uint64_t{64} << 20); }
};

TEST_F(SmallPoolTest, ThreeTimesItsCapacityFitsByEviction) {
  constexpr uint64_t kBytes = 256 << 10;
  constexpr int kChunks = 3 * 64 * 4;
  int stored = 0;
  for (int i = 0; i < kChunks; ++i) {
    const ChunkCode code = Put("k" + std::to_string(i), i, kBytes);
    ASSERT_TRUE(code == ChunkCode::kOk || code == ChunkCode::kResourceExhausted)
        << i << " " << ChunkCodeName(code) << " " << message_;
    stored += code == ChunkCode::kOk ? 1 : 0;
  }
  EXPECT_EQ(stored, kChunks);
  int held = 0;
  for (int i = 0; i < kChunks; ++i) {
    const ChunkCode code = Get("k" + std::to_string(i), kBytes);
    if (code == ChunkCode::kOk) {
      ++held;
      EXPECT_TRUE(Brought(i, kBytes)) << i;
    } else {
      EXPECT_EQ(code, ChunkCode::kNotFound) << i;
    }
  }
  // Between what fits and half of it.
  EXPECT_LE(held, 64 * 4);
  EXPECT_GE(held, 64 * 2);
  EXPECT_EQ(client_->stats().verify_failures, 0u);
}

TEST_F(SmallPoolTest, ChunkThatCannotFitIsRefusedInTime) {
  PutOptions options;
  options.deadline = absl::Seconds(2);
  const MonoTime start = Clock::Real().Mono();
  const ChunkCode code = Put("huge", 1, 60 << 20, options);  // each store has 32 MiB
  EXPECT_EQ(code, ChunkCode::kResourceExhausted) << ChunkCodeName(code) << " " << message_;
  EXPECT_LT(Clock::Real().Mono() - start, absl::Seconds(4));
}

}  // namespace
}  // namespace cistern
