// cisternctl against a real pool of two stores.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_util.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/run_ctl.h"
#include "tools/pool/local_pool.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CtlTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto pool = pool::LocalPool::Start({.stores = 2, .pool_bytes = 32 << 20}, Clock::Real());
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool).release();
  }
  static void TearDownTestSuite() {
    if (pool_ == nullptr) return;
    EXPECT_TRUE(pool_->Stop().ok());
    delete pool_;
    pool_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(pool_, nullptr);
    path_ = pool_->dir() + "/file";
  }

  // With the way to the pool in front.
  Ran Run(std::vector<std::string> words) {
    words.insert(words.begin(), {"--endpoints", pool_->master_endpoints_file(), "--token-file",
                                 pool_->connection().token_file});
    return RunCtl(words);
  }
  std::string WriteFile(size_t bytes) {
    std::string content;
    for (size_t i = 0; content.size() < bytes; ++i) content += std::to_string(i * 2654435761u);
    content.resize(bytes);
    std::ofstream(path_, std::ios::binary) << content;
    return content;
  }

  static pool::LocalPool* pool_;
  std::string path_;
};
pool::LocalPool* CtlTest::pool_ = nullptr;

TEST_F(CtlTest, PutsAFileAndGetsItBack) {
  const std::string content = WriteFile(70'001);
  const Ran put = Run({"put", "round-trip", path_});
  ASSERT_EQ(put.exit_code, 0) << put.err;
  EXPECT_THAT(Run({"put", "round-trip", path_}).out, HasSubstr("present already"));
  const Ran get = Run({"get", "round-trip", "-"});
  ASSERT_EQ(get.exit_code, 0) << get.err;
  EXPECT_EQ(get.out, content);
}

TEST_F(CtlTest, GetsAChunkThatIsLongerThanItsFirstGuess) {
  const std::string content = WriteFile((5 << 20) + 3);
  ASSERT_EQ(Run({"put", "long", path_}).exit_code, 0);
  const Ran get = Run({"get", "long", path_ + ".copy"});
  ASSERT_EQ(get.exit_code, 0) << get.err;
  std::ifstream copy(path_ + ".copy", std::ios::binary);
  std::ostringstream text;
  text << copy.rdbuf();
  EXPECT_EQ(text.str(), content);
  EXPECT_EQ(Run({"chunks", "rm", "-n", "cisternctl", "-k", "long", "--force"}).exit_code, 0);
}

TEST_F(CtlTest, StatsAreTablesOrJson) {
  WriteFile(5000);
  ASSERT_EQ(Run({"put", "for-stats", path_}).exit_code, 0);
  EXPECT_THAT(Run({"stats"}).out, HasSubstr("taken by clients on a store's own host"));
  EXPECT_THAT(Run({"stores"}).out, HasSubstr("serving"));
  EXPECT_THAT(Run({"namespaces"}).out, HasSubstr("cisternctl"));
  const Ran json = Run({"-o", "json", "stats"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto stats = nlohmann::json::parse(json.out);
  EXPECT_GE(stats["pool"]["chunk_count"].get<uint64_t>(), 1u);
  EXPECT_EQ(stats["stores"].size(), 2u);
  // Of what was not asked for there is nothing.
  const auto stores = nlohmann::json::parse(Run({"-o", "json", "stores"}).out);
  EXPECT_EQ(stores.size(), 1u) << stores;
  EXPECT_EQ(stores["stores"].size(), 2u);
  const auto namespaces = nlohmann::json::parse(Run({"-o", "json", "namespaces"}).out);
  EXPECT_EQ(namespaces.size(), 1u) << namespaces;
  EXPECT_GE(namespaces["namespaces"].size(), 1u);
  const auto segments = nlohmann::json::parse(Run({"segments", "-o", "json"}).out);
  EXPECT_EQ(segments["segments"].size(), 2u);
  EXPECT_EQ(segments["segments"][0]["bytes"], 16 << 20);
}

TEST_F(CtlTest, MountsAndUnmountsASegment) {
  const Ran mount =
      Run({"segments", "mount", "-s", "store-0", "--bytes", "24MiB", "--name", "extra"});
  ASSERT_EQ(mount.exit_code, 0) << mount.err;
  EXPECT_THAT(mount.out, HasSubstr("store store-0 has segment extra, 24.0 MiB, at /dev/shm/"));
  const auto segments = nlohmann::json::parse(Run({"-o", "json", "segments"}).out)["segments"];
  ASSERT_EQ(segments.size(), 3u);
  nlohmann::json extra;
  for (const auto& segment : segments) {
    if (segment["name"] == "extra") extra = segment;
  }
  EXPECT_EQ(extra["store"], "store-0");
  EXPECT_EQ(extra["state"], "mounted");
  EXPECT_EQ(extra["bytes"], 24 << 20);
  const std::string path = extra["path"];
  EXPECT_EQ(access(path.c_str(), F_OK), 0);

  EXPECT_EQ(
      Run({"segments", "mount", "-s", "store-0", "--bytes", "8MiB", "--name", "extra"}).exit_code,
      1);
  const Ran nobody = Run({"segments", "mount", "-s", "store-9", "--bytes", "8MiB"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("store-0"));
  EXPECT_THAT(nobody.err, HasSubstr("store-1"));
  EXPECT_EQ(Run({"segments", "mount", "-s", "store-0", "--bytes", "1KiB"}).exit_code, 2);
  EXPECT_EQ(Run({"segments", "mount", "-s", "store-0"}).exit_code, 2);
  EXPECT_EQ(Run({"segments", "unmount", "-s", "store-0", "--segment", "none"}).exit_code, 1);
  EXPECT_EQ(
      Run({"segments", "unmount", "-s", "store-0", "--segment", "extra", "--cancel"}).exit_code, 1);

  const Ran unmount = Run({"segments", "unmount", "-s", "store-0", "--segment", "extra"});
  EXPECT_EQ(unmount.exit_code, 0) << unmount.err;
  EXPECT_THAT(unmount.out, HasSubstr("segment extra of store store-0 unmounted, 24.0 MiB given"));
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  const Ran last = Run({"segments", "unmount", "-s", "store-0", "--segment", "dram-0"});
  EXPECT_EQ(last.exit_code, 1);
  EXPECT_THAT(last.err, HasSubstr("last segment"));
}

TEST_F(CtlTest, ListsLooksAtAndRemovesAChunk) {
  WriteFile(5000);
  ASSERT_EQ(Run({"put", "one", path_, "-n", "lonely"}).exit_code, 0);
  const auto list = nlohmann::json::parse(Run({"-o", "json", "chunks", "ls", "-n", "lonely"}).out);
  ASSERT_EQ(list["chunks"].size(), 1u);
  const std::string id = list["chunks"][0]["id"];
  EXPECT_EQ(list["chunks"][0]["length"], 5000);
  EXPECT_THAT(Run({"chunks", "stat", "-n", "lonely", "-k", "one"}).out, HasSubstr(id));
  EXPECT_THAT(Run({"chunks", "stat", "-n", "lonely", id}).out, HasSubstr("5000 bytes"));
  const Ran rm = Run({"chunks", "rm", "-n", "lonely", id});
  EXPECT_EQ(rm.exit_code, 0) << rm.err;
  EXPECT_EQ(rm.out, "removed 1 chunk\n");
  EXPECT_EQ(Run({"chunks", "rm", "-n", "lonely", id}).exit_code, 1);
  EXPECT_EQ(Run({"get", "one", path_, "-n", "lonely"}).exit_code, 1);
}

TEST_F(CtlTest, SaysWhatIsWrongWithAPattern) {
  WriteFile(5000);
  ASSERT_EQ(Run({"put", "k", path_, "-n", "keeper", "--keep-keys"}).exit_code, 0);
  const Ran bad = Run({"chunks", "ls", "-n", "keeper", "--match", "a("});
  EXPECT_EQ(bad.exit_code, 2) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("missing )"));
  EXPECT_EQ(Run({"chunks", "rm", "-n", "keeper", "--match", "a("}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "ls", "--match", "a"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "rm", "--match", "a"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "rm", "-n", "keeper", "--match", "a", "--all"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "rm", "-n", "keeper", "-k", "k", "--dry-run"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "ls", "-n", "keeper", "--match", "a", "--limit", "0"}).exit_code, 2);
  // A namespace that keeps no keys has none to match.
  ASSERT_EQ(Run({"put", "k", path_, "-n", "keyless"}).exit_code, 0);
  const Ran none = Run({"chunks", "ls", "-n", "keyless", "--match", "k"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("keys"));
  const Ran absent = Run({"chunks", "ls", "-n", "absent", "--match", "k"});
  EXPECT_EQ(absent.exit_code, 1) << absent.err;
}

TEST_F(CtlTest, RemovesANamespace) {
  WriteFile(5000);
  ASSERT_EQ(Run({"put", "one", path_, "-n", "short-lived"}).exit_code, 0);
  const Ran rm = Run({"namespaces", "rm", "short-lived"});
  EXPECT_EQ(rm.exit_code, 0) << rm.err;
  EXPECT_THAT(rm.out, HasSubstr("1 chunk"));
  EXPECT_EQ(Run({"get", "one", path_, "-n", "short-lived"}).exit_code, 1);
}

TEST_F(CtlTest, EvictsByHandWhatIsNotLeased) {
  WriteFile(5000);
  ASSERT_EQ(Run({"put", "one", path_, "-n", "evictee"}).exit_code, 0);
  const Ran evict = Run({"evict", "-n", "evictee"});
  EXPECT_EQ(evict.exit_code, 0) << evict.err;
  EXPECT_THAT(evict.out, HasSubstr("evicting 1 chunk"));
}

TEST_F(CtlTest, PingsAndTellsVersions) {
  const Ran ping = Run({"-o", "json", "ping", "--count", "3"});
  ASSERT_EQ(ping.exit_code, 0) << ping.err;
  EXPECT_EQ(nlohmann::json::parse(ping.out)["round_trips"], 3);
  EXPECT_THAT(Run({"version"}).out, HasSubstr("cistern-master 0."));
}

TEST_F(CtlTest, ExitCodesTellWhatWentWrong) {
  EXPECT_EQ(Run({"get", "never-put", path_, "--fingerprint", "f", "-n", "other"}).exit_code, 1);
  EXPECT_EQ(Run({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "stat", "zz"}).exit_code, 2);
  WriteFile(100);
  EXPECT_EQ(Run({"put", "too-small", path_}).exit_code, 2);
  const Ran nobody = RunCtl({"--master", "127.0.0.1:1", "stats"});
  EXPECT_EQ(nobody.exit_code, 3);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
  const Ran denied = RunCtl({"--endpoints", pool_->master_endpoints_file(), "stats"});
  EXPECT_EQ(denied.exit_code, 4) << denied.err;
  for (const char* flag : {"--token-file", "--endpoints"}) {
    const Ran nofile = RunCtl({flag, "/nonexistent", "stats"});
    EXPECT_EQ(nofile.exit_code, 2) << nofile.err;
    EXPECT_THAT(nofile.err, HasSubstr("/nonexistent"));
  }
}

TEST_F(CtlTest, GoesThroughNoProxyForTheWeb) {
  setenv("http_proxy", "http://127.0.0.1:1", 1);  // nobody is there
  const Ran stats = Run({"stats"});
  unsetenv("http_proxy");
  EXPECT_EQ(stats.exit_code, 0) << stats.err;
}

// Chunks whose keys are kept, in a namespace of their own.
class CtlMatchTest : public CtlTest {
 protected:
  void SetUp() override {
    CtlTest::SetUp();
    ns_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    ClientOptions options;
    options.master_address = pool_->connection().data;
    options.pool_token_file = pool_->connection().token_file;
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(options));
    ASSERT_OK_AND_ASSIGN(kept_, client_->OpenNamespace(ns_, "v1", {.keep_keys = true}));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(4'096));
  }
  void Put(const std::string& key, uint16_t shard = 0) {
    const Span span{buffer_.data(), 4'096};
    const PutItem item{
        .id = *kept_->Hash(key), .shard = shard, .memory = {.spans = {&span, 1}}, .key = key};
    PutOptions options;
    options.wait_visible = true;
    const BatchResult result = kept_->BatchPut({&item, 1}, options);
    ASSERT_EQ(result.items.at(0).code, ChunkCode::kOk) << result.message;
  }
  std::vector<std::string> Words(std::vector<std::string> words) const {
    words.insert(words.end(), {"-n", ns_});
    return words;
  }
  nlohmann::json ListJson(const std::string& pattern, const std::string& limit = "1000") {
    const Ran ran =
        Run(Words({"-o", "json", "chunks", "ls", "--match", pattern, "--limit", limit}));
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, /*allow_exceptions=*/false);
  }
  static std::vector<std::string> Keys(const nlohmann::json& list) {
    std::vector<std::string> keys;
    for (const auto& chunk : list["chunks"]) keys.push_back(chunk["key"]);
    return keys;
  }

  std::string ns_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<Namespace> kept_;
  Buffer buffer_;
};

TEST_F(CtlMatchTest, ListsWhatMatchesAsTableOrJson) {
  for (const char* key : {"doc/2", "doc/1", "img/1"}) ASSERT_NO_FATAL_FAILURE(Put(key));
  ASSERT_NO_FATAL_FAILURE(Put("doc/1", 3));
  ASSERT_NO_FATAL_FAILURE(Put(std::string("doc/\x01", 5)));
  const nlohmann::json list = ListJson("^doc/");
  // By key, then by shard; what is no text is shown as bytes.
  EXPECT_THAT(Keys(list), ElementsAre("doc/\\x01", "doc/1", "doc/1", "doc/2"));
  EXPECT_EQ(list["chunks"][1]["shard"], 0);
  EXPECT_EQ(list["chunks"][2]["shard"], 3);
  EXPECT_EQ(list["chunks"][1]["id"], kept_->Hash("doc/1")->ToHex());
  EXPECT_EQ(list["chunks"][3]["length"], 4'096);
  EXPECT_EQ(list["more"], false);

  const Ran table = Run(Words({"chunks", "ls", "--match", "img|2$"}));
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("img/1"));
  EXPECT_THAT(table.out, HasSubstr("doc/2"));
  EXPECT_THAT(table.out, Not(HasSubstr("doc/1")));
  EXPECT_THAT(table.out, HasSubstr(kept_->Hash("img/1")->ToHex()));
}

TEST_F(CtlMatchTest, SaysWhenNothingMatches) {
  ASSERT_NO_FATAL_FAILURE(Put("doc/1"));
  const Ran table = Run(Words({"chunks", "ls", "--match", "nothing"}));
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.out, "no chunk's key matches\n");
  EXPECT_TRUE(ListJson("nothing")["chunks"].empty());
  const Ran rm = Run(Words({"chunks", "rm", "--match", "nothing"}));
  EXPECT_EQ(rm.exit_code, 0) << rm.err;
  EXPECT_EQ(rm.out, "removed 0 chunks\n");
}

TEST_F(CtlMatchTest, PatternThatIsNoneIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Put("doc/1"));
  for (const char* command : {"ls", "rm"}) {
    const Ran ran = Run(Words({"chunks", command, "--match", "doc/(["}));
    EXPECT_EQ(ran.exit_code, 2) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr("missing"));  // RE2's own words
  }
  // Only a namespace knows whether its keys are kept.
  EXPECT_EQ(Run({"chunks", "ls", "--match", "doc"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "rm", "--match", "doc"}).exit_code, 2);
  EXPECT_EQ(Run({"chunks", "rm", "--dry-run", "-n", ns_, "-k", "doc/1"}).exit_code, 2);
  EXPECT_THAT(Keys(ListJson(".")), ElementsAre("doc/1"));
}

TEST_F(CtlMatchTest, LimitCutsTheListAndSaysSo) {
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(Put("k" + std::to_string(i)));
  const nlohmann::json three = ListJson("^k", "3");
  EXPECT_EQ(three["chunks"].size(), 3u);
  EXPECT_EQ(three["more"], true);
  const nlohmann::json five = ListJson("^k", "5");
  EXPECT_THAT(Keys(five), ElementsAre("k0", "k1", "k2", "k3", "k4"));
  const Ran table = Run(Words({"chunks", "ls", "--match", "^k", "--limit", "2"}));
  EXPECT_THAT(table.out, HasSubstr("(more; --limit was 2)"));
}

TEST_F(CtlMatchTest, RemovesWhatMatchesAndNothingElse) {
  for (const char* key : {"doc/1", "doc/2", "img/1"}) ASSERT_NO_FATAL_FAILURE(Put(key));
  const Ran dry = Run(Words({"chunks", "rm", "--match", "^doc/", "--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_EQ(dry.out, "would remove 2 chunks\n");
  EXPECT_EQ(ListJson(".")["chunks"].size(), 3u);

  const Ran rm = Run(Words({"-o", "json", "chunks", "rm", "--match", "^doc/"}));
  ASSERT_EQ(rm.exit_code, 0) << rm.err;
  const auto sum = nlohmann::json::parse(rm.out);
  EXPECT_EQ(sum["matched"], 2);
  EXPECT_EQ(sum["removed"], 2);
  EXPECT_EQ(sum["refused"], 0);
  EXPECT_EQ(sum["failed"], 0);
  EXPECT_THAT(Keys(ListJson(".")), ElementsAre("img/1"));
}

TEST_F(CtlMatchTest, LeasedChunksGoByForceOnly) {
  ASSERT_NO_FATAL_FAILURE(Put("doc/1"));
  const KeyId id = *kept_->Hash("doc/1");
  ASSERT_OK_AND_ASSIGN(const LookupResult leased, kept_->Lookup({&id, 1}));
  ASSERT_EQ(leased.leading_run, 1u);
  const Ran rm = Run(Words({"chunks", "rm", "--match", "^doc/"}));
  EXPECT_NE(rm.exit_code, 0);
  EXPECT_THAT(rm.out, HasSubstr("1 leased or pinned: --force removes them too"));
  EXPECT_EQ(ListJson(".")["chunks"].size(), 1u);
  const Ran forced = Run(Words({"chunks", "rm", "--match", "^doc/", "--force"}));
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_EQ(forced.out, "removed 1 chunk\n");
  EXPECT_TRUE(ListJson(".")["chunks"].empty());
}

}  // namespace
}  // namespace cistern
