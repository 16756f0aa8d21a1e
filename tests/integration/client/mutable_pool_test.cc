// Mutable namespaces and kept keys against real daemons.
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/client/pool_fixture.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 64 << 10;

PutOptions Replacing() {
  PutOptions options;
  options.replace = true;
  return options;
}

// One client with memory of its own for one chunk: every 8 bytes of it are the chunk's stamp.
class Stamper {
 public:
  Stamper(const ClientOptions& options, const NamespaceOptions& ns) {
    client_ = *Client::Connect(options);
    ns_ = *client_->OpenNamespace("stamps", "v1", ns);
    buffer_ = *client_->AllocateBuffer(kBytes);
    span_ = {buffer_.data(), kBytes};
  }
  ChunkCode Write(const std::string& key, uint64_t stamp, const PutOptions& options) {
    auto* words = static_cast<uint64_t*>(buffer_.data());
    std::fill_n(words, kBytes / 8, stamp);
    const PutItem item{.id = *ns_->Hash(key), .memory = {.spans = {&span_, 1}}, .key = key};
    const BatchResult result = ns_->BatchPut({&item, 1}, options);
    message_ = result.message;
    return result.items[0].code;
  }
  // The stamp; 0 = a miss. Anything but one whole value fails the test.
  uint64_t Read(const std::string& key) {
    auto* words = static_cast<uint64_t*>(buffer_.data());
    std::fill_n(words, kBytes / 8, 0);
    const GetItem item{.id = *ns_->Hash(key), .memory = {.spans = {&span_, 1}}};
    const BatchResult result = ns_->BatchGet({&item, 1});
    message_ = result.message;
    code_ = result.items[0].code;
    if (code_ != ChunkCode::kOk) return 0;
    EXPECT_TRUE(result.items[0].verified);
    EXPECT_EQ(std::count(words, words + kBytes / 8, words[0]), static_cast<int64_t>(kBytes / 8));
    return words[0];
  }
  Namespace& ns() { return *ns_; }
  const std::string& message() const { return message_; }
  ChunkCode code() const { return code_; }

 private:
  std::unique_ptr<Client> client_;
  std::shared_ptr<Namespace> ns_;
  Buffer buffer_;
  Span span_;
  std::string message_;
  ChunkCode code_ = ChunkCode::kOk;
};

class MutablePoolTest : public PoolFixture {
 protected:
  void SetUp() override { StartPool(uint64_t{128} << 20); }
  std::unique_ptr<Stamper> NewStamper() {
    return std::make_unique<Stamper>(ConnectOptions(),
                                     NamespaceOptions{.mutable_chunks = true, .keep_keys = true});
  }
};

TEST_F(MutablePoolTest, ReplacedChunkIsReadByAllAtOnceAndMayHaveAnotherLength) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("mutable", "v1", {.mutable_chunks = true}));
  ASSERT_OK_AND_ASSIGN(const auto other, Client::Connect(ConnectOptions()));
  ASSERT_OK_AND_ASSIGN(const auto same, other->OpenNamespace("mutable", "v1"));
  EXPECT_TRUE(same->options().mutable_chunks);
  ASSERT_EQ(Put("k", 1, 100'000, Visible()), ChunkCode::kOk) << message_;
  EXPECT_EQ(Put("k", 2, 200'000), ChunkCode::kPresent);
  ASSERT_EQ(Get("k", 100'000), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, 100'000));
  ASSERT_EQ(Put("k", 2, 2'000'000, Replacing()), ChunkCode::kOk) << message_;
  ASSERT_EQ(Get("k", 2'000'000), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(2, 2'000'000));
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, other->AllocateBuffer(2'000'000));
  const Span span{buffer.data(), buffer.bytes()};
  const GetItem item{.id = *same->Hash("k"), .memory = {.spans = {&span, 1}}};
  const BatchResult got = same->BatchGet({&item, 1});
  ASSERT_EQ(got.items[0].code, ChunkCode::kOk) << got.message;
  EXPECT_TRUE(std::string_view(static_cast<char*>(buffer.data()), 2'000'000) ==
              PatternBytes(2, 2'000'000));
  // What is not there is put.
  PutOptions visible = Replacing();
  visible.wait_visible = true;
  ASSERT_EQ(Put("new", 3, 50'000, visible), ChunkCode::kOk) << message_;
  ASSERT_EQ(Get("new", 50'000), ChunkCode::kOk);
  // The old bytes are free, the master has the new length.
  ASSERT_TRUE(Eventually([&] {
    const admin::StatsReply stats = Stats();
    uint64_t payload = 0;
    for (const auto& store : stats.stores()) {
      for (const auto& tier : store.tiers()) payload += tier.payload_bytes();
    }
    for (const auto& ns : stats.namespaces()) {
      if (ns.name() == "mutable" && ns.payload_bytes() != 2'050'000) return false;
    }
    return payload == 2'050'000;
  }));
}

TEST_F(MutablePoolTest, ReplaceIsRefusedWhereChunksAreImmutableAndTwiceInABatch) {
  ASSERT_EQ(Put("k", 1, 5000), ChunkCode::kOk);
  EXPECT_EQ(Put("k", 2, 5000, Replacing()), ChunkCode::kFailedPrecondition);
  EXPECT_THAT(message_, HasSubstr("immutable"));
  ASSERT_EQ(Get("k", 5000), ChunkCode::kOk);
  EXPECT_TRUE(Brought(1, 5000));
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("mutable", "v1", {.mutable_chunks = true}));
  const std::vector<Span> spans = {{At(0), 5000}, {At(8192), 5000}};
  const std::vector<PutItem> items = {{.id = Id("k"), .memory = {.spans = {&spans[0], 1}}},
                                      {.id = Id("k"), .memory = {.spans = {&spans[1], 1}}}};
  const BatchResult result = ns_->BatchPut(items, Replacing());
  EXPECT_EQ(result.items[0].code, ChunkCode::kOk) << result.message;
  EXPECT_EQ(result.items[1].code, ChunkCode::kInvalidArgument);
  EXPECT_THAT(result.message, HasSubstr("same key"));
}

TEST_F(MutablePoolTest, WithoutRoomForASecondCopyTheOldBytesStay) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("mutable", "v1", {.mutable_chunks = true}));
  constexpr uint64_t kLarge = 40 << 20;  // of a store's 64 MiB
  ASSERT_EQ(Put("large", 1, kLarge, Visible()), ChunkCode::kOk) << message_;
  PutOptions options = Replacing();
  options.deadline = absl::Seconds(10);
  EXPECT_EQ(Put("large", 2, kLarge, options), ChunkCode::kResourceExhausted) << message_;
  ASSERT_EQ(Get("large", kLarge), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(1, kLarge));
}

TEST_F(MutablePoolTest, ReadersSeeWholeValuesAndNoneOlderThanAcknowledged) {
  constexpr int kRounds = 60;
  std::atomic<uint64_t> acknowledged{0};
  std::atomic<int> writing{3};
  std::vector<std::thread> threads;
  // One writes "own" with rising stamps; two fight over "shared".
  threads.emplace_back([&] {
    const auto me = NewStamper();
    for (uint64_t stamp = 1; stamp <= kRounds; ++stamp) {
      EXPECT_EQ(me->Write("own", stamp, Replacing()), ChunkCode::kOk) << me->message();
      acknowledged = stamp;
    }
    --writing;
  });
  for (uint64_t w = 1; w <= 2; ++w) {
    threads.emplace_back([&, w] {
      const auto me = NewStamper();
      for (uint64_t i = 1; i <= kRounds; ++i) {
        EXPECT_EQ(me->Write("shared", w << 32 | i, Replacing()), ChunkCode::kOk) << me->message();
      }
      --writing;
    });
  }
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&] {
      const auto me = NewStamper();
      uint64_t last = 0;
      while (writing > 0) {
        const uint64_t before = acknowledged;
        const uint64_t stamp = me->Read("own");
        // A miss only before lookups see the first.
        if (stamp != 0) {
          EXPECT_GE(stamp, std::max(before, last));
          last = stamp;
        } else {
          EXPECT_EQ(last, 0u) << ChunkCodeName(me->code()) << me->message();
        }
        me->Read("shared");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto me = NewStamper();
  EXPECT_EQ(me->Read("own"), static_cast<uint64_t>(kRounds));
  // The last of one of the two.
  EXPECT_EQ(me->Read("shared") & 0xFFFFFFFF, static_cast<uint64_t>(kRounds));
}

TEST_F(MutablePoolTest, StoreThatWasAwayNeverBringsOldBytesBack) {
  const auto me = NewStamper();
  const auto other = NewStamper();
  std::vector<std::string> keys;
  for (int i = 0; i < 12; ++i) {
    keys.push_back("k" + std::to_string(i));
    PutOptions options = Visible();
    options.affinity = static_cast<uint64_t>(i + 1) << 56;  // in both stores
    ASSERT_EQ(me->Write(keys.back(), 1, options), ChunkCode::kOk) << me->message();
    ASSERT_EQ(other->Read(keys.back()), 1u);
  }
  ASSERT_NO_FATAL_FAILURE(KillStore(0));
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("dead") == 1; }));
  std::set<std::string> replaced;
  for (size_t i = 0; i < keys.size(); i += 2) {
    ASSERT_EQ(me->Write(keys[i], 2, Replacing()), ChunkCode::kOk) << me->message();
    replaced.insert(keys[i]);
  }
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      for (const std::string& key : keys) {
        const uint64_t stamp = other->Read(key);
        if (stamp == 0) continue;  // a miss
        EXPECT_EQ(stamp, replaced.contains(key) ? 2u : 1u) << key;
      }
    }
  });
  ASSERT_NO_FATAL_FAILURE(StartStoreAgain(0));
  EXPECT_TRUE(Eventually([&] { return StoresThatAre("serving") == 2; }));
  // What was written anew is there, in the other store; removed there it is gone for good.
  EXPECT_TRUE(Eventually([&] {
    return std::all_of(replaced.begin(), replaced.end(),
                       [&](const std::string& key) { return me->Read(key) == 2; });
  }));
  over = true;
  reader.join();
  const KeyId first = *me->ns().Hash(keys[0]);
  EXPECT_EQ(me->ns().Remove({&first, 1}, RemoveOptions()).items[0].code, ChunkCode::kOk);
  EXPECT_EQ(other->Read(keys[0]), 0u);
}

TEST_F(MutablePoolTest, KilledAmidReplacesAStoreHasTheOldOrTheNew) {
  const auto me = NewStamper();
  const std::vector<std::string> keys = {"a", "b", "c", "d", "e", "f"};
  std::map<std::string, uint64_t> acknowledged;
  for (const std::string& key : keys) {
    ASSERT_EQ(me->Write(key, 1, Visible()), ChunkCode::kOk) << me->message();
    acknowledged[key] = 1;
  }
  std::atomic<uint64_t> rounds{0};
  std::thread killer([&] {
    while (rounds < 20) Clock::Real().SleepFor(absl::Milliseconds(1));
    kill(store_pid(0), SIGKILL);
    kill(store_pid(1), SIGKILL);
  });
  std::map<std::string, uint64_t> tried = acknowledged;
  PutOptions options = Replacing();
  options.deadline = absl::Milliseconds(500);
  bool going = true;
  for (uint64_t stamp = 2; going; ++stamp) {
    for (const std::string& key : keys) {
      tried[key] = stamp;
      const ChunkCode code = me->Write(key, stamp, options);
      going = code == ChunkCode::kOk;
      if (!going) break;
      acknowledged[key] = stamp;
    }
    ++rounds;
  }
  killer.join();
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("dead") == 2; }));
  ASSERT_NO_FATAL_FAILURE(StartStoreAgain(0));
  ASSERT_NO_FATAL_FAILURE(StartStoreAgain(1));
  ASSERT_TRUE(Eventually([&] { return StoresThatAre("serving") == 2; }));
  for (const std::string& key : keys) {
    // A miss where a replace was placed in the other store before that died too.
    const uint64_t stamp = me->Read(key);
    if (stamp == 0) continue;
    EXPECT_GE(stamp, acknowledged[key]) << key;
    EXPECT_LE(stamp, tried[key]) << key;
  }
}

TEST_F(MutablePoolTest, KeysAreListedAndRemovedByPatternOverBothStores) {
  const auto me = NewStamper();
  std::set<std::string> all;
  for (int i = 0; i < 60; ++i) {
    const std::string key = (i % 3 == 0 ? "draft/" : "final/") + std::to_string(i);
    PutOptions options;
    options.affinity = static_cast<uint64_t>(i + 1) << 56;
    ASSERT_EQ(me->Write(key, 1, options), ChunkCode::kOk) << me->message();
    all.insert(key);
  }
  const auto list = [&](std::string_view pattern, size_t page_keys) {
    std::multiset<std::string> keys;
    ListOptions options;
    options.max_keys = page_keys;
    do {
      const auto page = me->ns().ListKeys(pattern, options);
      if (!page.ok()) {
        ADD_FAILURE() << page.status();
        break;
      }
      EXPECT_TRUE(page->unreachable.empty());
      for (const ListedKey& key : page->keys) {
        keys.insert(key.key);
        EXPECT_EQ(key.id, *me->ns().Hash(key.key));
        EXPECT_EQ(key.length, kBytes);
      }
      options.cursor = page->next;
    } while (!options.cursor.empty());
    return keys;
  };
  // Acknowledged is enough: nothing waits until the master knows.
  EXPECT_EQ(list("", 1'000), std::multiset<std::string>(all.begin(), all.end()));
  EXPECT_EQ(list("", 1), std::multiset<std::string>(all.begin(), all.end()));
  EXPECT_EQ(list("^draft/", 1'000).size(), 20u);
  EXPECT_EQ(list("/1[0-9]$", 1'000).size(), 10u);
  EXPECT_TRUE(list("nothing like it", 1'000).empty());
  EXPECT_THAT(me->ns().ListKeys("a(b"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("missing )")));
  EXPECT_THAT(me->ns().ListKeys("((((a{30}){30}){30}){30})"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ListOptions nonsense;
  nonsense.cursor = "nonsense";
  EXPECT_THAT(me->ns().ListKeys("", nonsense), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ns_->ListKeys(""),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("keep_keys")));
  // A lease holds its chunk unless it is forced.
  const KeyId leased = *me->ns().Hash("draft/0");
  ASSERT_TRUE(Eventually([&] {
    const auto found = me->ns().Lookup({&leased, 1});
    return found.ok() && found->leading_run == 1;
  }));
  ASSERT_OK_AND_ASSIGN(MatchRemoval removal, me->ns().RemoveMatching("^draft/"));
  EXPECT_EQ(removal.matched, 20u);
  EXPECT_EQ(removal.removed, 19u);
  EXPECT_EQ(removal.refused, 1u);
  EXPECT_EQ(removal.failed, 0u);
  EXPECT_EQ(list("^draft/", 1'000), std::multiset<std::string>{"draft/0"});
  RemoveOptions force;
  force.force = true;
  ASSERT_OK_AND_ASSIGN(removal, me->ns().RemoveMatching("^draft/", force));
  EXPECT_EQ(removal.removed, 1u);
  EXPECT_EQ(list("", 1'000).size(), 40u);
  EXPECT_EQ(me->Read("draft/3"), 0u);
  EXPECT_EQ(me->Read("final/1"), 1u);
}

TEST_F(MutablePoolTest, PutByPatternAndRemovedAtOnceIsGone) {
  const auto me = NewStamper();
  for (int i = 0; i < 20; ++i) {
    const std::string key = "k" + std::to_string(i);
    ASSERT_EQ(me->Write(key, 1, {}), ChunkCode::kOk) << me->message();
    // Its record is not at the master yet, most likely.
    ASSERT_OK_AND_ASSIGN(const MatchRemoval removal, me->ns().RemoveMatching("^k"));
    EXPECT_EQ(removal.removed, 1u) << i;
    EXPECT_EQ(me->Read(key), 0u) << i;
  }
}

TEST_F(MutablePoolTest, KeyThatIsMissingOrAnothersIsRefused) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("keeper", "v1", {.keep_keys = true}));
  const Span span{At(0), 5000};
  PutItem item{.id = Id("right"), .memory = {.spans = {&span, 1}}};
  BatchResult result = ns_->BatchPut({&item, 1});
  EXPECT_EQ(result.items[0].code, ChunkCode::kInvalidArgument);
  EXPECT_THAT(result.message, HasSubstr("needs its key"));
  item.key = "wrong";
  result = ns_->BatchPut({&item, 1});
  EXPECT_EQ(result.items[0].code, ChunkCode::kInvalidArgument);
  EXPECT_THAT(result.message, HasSubstr("not that of its key"));
  item.key = "right";
  EXPECT_EQ(ns_->BatchPut({&item, 1}).items[0].code, ChunkCode::kOk);
}

TEST_F(MutablePoolTest, FourKibibyteKeysByTheHundredsFitNoSingleRequest) {
  ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("keeper", "v1", {.keep_keys = true}));
  std::vector<std::string> keys;
  std::vector<Span> spans;
  std::vector<PutItem> items;
  for (int i = 0; i < 600; ++i) {  // 2.4 MiB of keys
    keys.push_back(std::string(4090, 'k') + std::to_string(100'000 + i));
    spans.push_back({At(static_cast<uint64_t>(i) * 4096), 4096});
  }
  for (int i = 0; i < 600; ++i) {
    items.push_back({.id = Id(keys[i]), .memory = {.spans = {&spans[i], 1}}, .key = keys[i]});
  }
  EXPECT_EQ(ns_->BatchPut(items).CountOf(ChunkCode::kOk), 600u);
  size_t listed = 0;
  ListOptions options;
  do {
    ASSERT_OK_AND_ASSIGN(const KeyPage page, ns_->ListKeys("100[0-9]+$", options));
    listed += page.keys.size();
    options.cursor = page.next;
  } while (!options.cursor.empty());
  EXPECT_EQ(listed, 600u);
}

}  // namespace
}  // namespace cistern
