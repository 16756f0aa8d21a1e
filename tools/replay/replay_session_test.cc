#include "tools/replay/replay_session.h"

#include <cstring>
#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/replay/chunk_pattern.h"

namespace cistern::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kChunk = 4096;

// A pool in a map, of which each test bends one thing. Keys are hashed to their number.
class FakeNamespace final : public Namespace {
 public:
  const NamespaceId& id() const override { return id_; }
  const std::string& name() const override { return name_; }
  const NamespaceOptions& options() const override { return options_; }
  absl::StatusOr<KeyId> Hash(std::string_view key) const override {
    KeyId id;
    const uint64_t number = std::stoull(std::string(key.substr(key.find('-') + 1)));
    std::memcpy(id.bytes.data(), &number, 8);
    return id;
  }
  absl::Status HashMany(absl::Span<const std::string_view>, std::vector<KeyId>*) const override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<LookupResult> Lookup(absl::Span<const KeyId> ids, const LookupOptions&) override {
    clock.Advance(absl::Milliseconds(1));
    if (!lookup_status.ok()) return lookup_status;
    LookupResult result;
    for (const KeyId& id : ids) result.present.push_back(chunks.count(id.word(0)) > 0);
    while (result.leading_run < ids.size() && result.present[result.leading_run]) {
      ++result.leading_run;
    }
    if (result.leading_run > 0) result.leases = {LeaseId::FromBytes("0123456789abcdef")};
    return result;
  }
  absl::StatusOr<std::vector<bool>> Exists(absl::Span<const KeyId>, const LookupOptions&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<LookupResult> Adopt(std::string_view) override {
    return absl::UnimplementedError("");
  }
  absl::Status Release(absl::Span<const LeaseId> leases, const CallOptions&) override {
    releases += static_cast<int>(leases.size());
    return absl::OkStatus();
  }
  BatchResult BatchPut(absl::Span<const PutItem> items, const PutOptions& options) override {
    clock.Advance(absl::Milliseconds(2));
    affinities.push_back(options.affinity);
    BatchResult result;
    for (const PutItem& item : items) {
      const Span& span = item.memory.spans[0];
      const auto* bytes = static_cast<const char*>(span.data);
      ChunkCode code = put_code;
      if (code == ChunkCode::kOk &&
          !chunks.emplace(item.id.word(0), std::string(bytes, span.bytes)).second) {
        code = ChunkCode::kPresent;
      }
      put_order.push_back(item.id.word(0));
      result.items.push_back({code, false, span.bytes});
    }
    return result;
  }
  BatchResult BatchGet(absl::Span<const GetItem> items, const GetOptions&) override {
    clock.Advance(absl::Milliseconds(3));
    BatchResult result;
    for (const GetItem& item : items) {
      const auto it = chunks.find(item.id.word(0));
      const auto code = get_codes.find(item.id.word(0));
      if (code != get_codes.end()) {
        result.items.push_back({code->second, false, 0});
        continue;
      }
      // A pool that forgets to write leaves what was there.
      if (!get_writes_nothing) {
        std::memcpy(item.memory.spans[0].data, it->second.data(), it->second.size());
      }
      result.items.push_back({ChunkCode::kOk, true, it->second.size()});
    }
    return result;
  }
  absl::Status Prefetch(absl::Span<const KeyId>, const LookupOptions&) override { return {}; }
  BatchResult Remove(absl::Span<const KeyId>, const RemoveOptions&) override { return {}; }
  absl::StatusOr<uint64_t> RemoveAll(const RemoveOptions&) override { return 0; }
  Pending<absl::StatusOr<LookupResult>> LookupAsync(absl::Span<const KeyId>,
                                                    const LookupOptions&) override {
    return {};
  }
  Pending<BatchResult> BatchPutAsync(absl::Span<const PutItem>, const PutOptions&) override {
    return {};
  }
  absl::StatusOr<KeyPage> ListKeys(std::string_view, const ListOptions&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<MatchRemoval> RemoveMatching(std::string_view, const RemoveOptions&) override {
    return absl::UnimplementedError("");
  }
  PendingGet BatchGetAsync(absl::Span<const GetItem>, const GetOptions&) override { return {}; }

  FakeClock clock;
  std::map<uint64_t, std::string> chunks;
  absl::Status lookup_status;
  ChunkCode put_code = ChunkCode::kOk;
  std::map<uint64_t, ChunkCode> get_codes;
  bool get_writes_nothing = false;
  int releases = 0;
  std::vector<uint64_t> affinities;
  std::vector<uint64_t> put_order;

 private:
  NamespaceId id_;
  std::string name_ = "fake";
  NamespaceOptions options_;
};

class ReplaySessionTest : public testing::Test {
 protected:
  // Two chunks at a time, so that runs are cut.
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(2 * kChunk);
  FakeNamespace pool_;
  ReplaySession session_{
      pool_, absl::MakeSpan(memory_), pool_.clock, {.chunk_bytes = kChunk, .seed = 9}};

  const ReplayCounts& counts() const { return session_.counts(); }
};

TEST_F(ReplaySessionTest, PutsEverythingIntoAnEmptyPool) {
  session_.Replay({0, 1300, 10, {5, 6, 7}});
  EXPECT_THAT(pool_.put_order, ElementsAre(5, 6, 7));
  EXPECT_EQ(ChunkPattern(9, 6).Verify(pool_.chunks[6].data(), kChunk), kChunk);
  EXPECT_EQ(counts().chunks_looked_up, 3u);
  EXPECT_EQ(counts().prompt_tokens, 1300u);
  EXPECT_EQ(counts().chunk_hits, 0u);
  EXPECT_EQ(counts().bytes_put, 3 * kChunk);
  EXPECT_EQ(counts().bytes_got, 0u);
  EXPECT_EQ(counts().errors, 0u);
  EXPECT_EQ(pool_.releases, 0);
  // Both calls of the chain say that they belong to its first chunk.
  EXPECT_THAT(pool_.affinities, ElementsAre(5, 5));
}

TEST_F(ReplaySessionTest, GetsTheLeadingRunAndPutsTheRest) {
  session_.Replay({0, 1500, 10, {5, 6, 7}});
  pool_.put_order.clear();
  session_.Replay({0, 2000, 10, {5, 6, 8, 7}});
  EXPECT_THAT(pool_.put_order, ElementsAre(8, 7));
  EXPECT_EQ(counts().chunk_hits, 3u);
  EXPECT_EQ(counts().prefix_hits, 2u);
  EXPECT_EQ(counts().prefix_hit_tokens, 1024u);
  EXPECT_EQ(counts().bytes_got, 2 * kChunk);
  EXPECT_EQ(counts().bytes_put, 4 * kChunk);
  EXPECT_EQ(counts().puts_present, 1u);
  EXPECT_EQ(counts().verification_failures, 0u);
  EXPECT_EQ(pool_.releases, 1);
}

TEST_F(ReplaySessionTest, AWholePromptThatIsThereCountsAllItsTokens) {
  session_.Replay({0, 1300, 10, {5, 6, 7}});
  session_.Replay({0, 1300, 10, {5, 6, 7}});
  EXPECT_EQ(counts().prefix_hit_tokens, 1300u);
}

TEST_F(ReplaySessionTest, CountsAWrongByteAndPutsFromThere) {
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  pool_.chunks[6][100] ^= 1;
  pool_.put_order.clear();
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  EXPECT_EQ(counts().verification_failures, 1u);
  EXPECT_EQ(counts().errors, 1u);
  EXPECT_THAT(counts().first_error, HasSubstr("block 6: byte 100 of 4096"));
  EXPECT_EQ(counts().prefix_hits, 1u);
  EXPECT_THAT(pool_.put_order, ElementsAre(6, 7));
}

TEST_F(ReplaySessionTest, BytesThatNeverArriveAreWrongThoughTheMemoryHeldThemBefore) {
  session_.Replay({0, 1024, 10, {5, 6}});
  pool_.get_writes_nothing = true;
  session_.Replay({0, 1024, 10, {5, 6}});
  EXPECT_EQ(counts().verification_failures, 2u);
}

TEST_F(ReplaySessionTest, AChunkGoneBeforeTheGetIsAMissAndIsPutAgain) {
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  pool_.get_codes[6] = ChunkCode::kNotFound;
  pool_.chunks.erase(7);
  pool_.put_order.clear();
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  EXPECT_EQ(counts().get_misses, 1u);
  EXPECT_EQ(counts().errors, 0u);
  EXPECT_EQ(counts().prefix_hits, 1u);
  EXPECT_THAT(pool_.put_order, ElementsAre(6, 7));
}

TEST_F(ReplaySessionTest, CountsWhatTheLibraryFoundCorrupt) {
  session_.Replay({0, 512, 10, {5}});
  pool_.get_codes[5] = ChunkCode::kDataLoss;
  session_.Replay({0, 512, 10, {5}});
  EXPECT_EQ(counts().verification_failures, 1u);
  EXPECT_EQ(counts().errors, 1u);
}

TEST_F(ReplaySessionTest, CountsRefusalsAndKeepsTheFirstMessage) {
  pool_.put_code = ChunkCode::kResourceExhausted;
  session_.Replay({0, 1024, 10, {5, 6}});
  pool_.lookup_status = absl::UnavailableError("127.0.0.1:1 is not up");
  session_.Replay({0, 512, 10, {5}});
  EXPECT_EQ(counts().errors, 4u);
  EXPECT_THAT(counts().first_error, HasSubstr("put: "));
  EXPECT_EQ(counts().bytes_put, 0u);
}

TEST_F(ReplaySessionTest, TimesTheCallsAndNothingElse) {
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  session_.Replay({0, 1536, 10, {5, 6, 7}});
  EXPECT_EQ(counts().lookup.count(), 2u);
  EXPECT_EQ(counts().lookup.max(), absl::Milliseconds(1));
  EXPECT_EQ(counts().put.count(), 2u);  // three chunks, two at a time
  EXPECT_EQ(counts().put.sum(), absl::Milliseconds(4));
  EXPECT_EQ(counts().get.sum(), absl::Milliseconds(6));
}

TEST(ReplayCountsTest, JsonKeepsEverythingAndMergeAdds) {
  ReplayCounts a;
  a.requests = 3;
  a.bytes_put = UINT64_MAX / 2;
  a.first_error = "put: \xff\"quoted\"";
  a.get.Record(absl::Milliseconds(5));
  const auto back = ReplayCounts::FromJson(a.ToJson());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->bytes_put, UINT64_MAX / 2);
  EXPECT_THAT(back->first_error, HasSubstr("\"quoted\""));
  ReplayCounts sum;
  sum.requests = 4;
  sum.Merge(*back);
  EXPECT_EQ(sum.requests, 7u);
  EXPECT_EQ(sum.get.max(), absl::Milliseconds(5));
}

TEST(ReplayCountsTest, RefusesWhatIsNotItsJson) {
  for (const char* text : {"", "[]", "{}", "{\"requests\": -1}"}) {
    EXPECT_FALSE(ReplayCounts::FromJson(text).ok()) << text;
  }
}

}  // namespace
}  // namespace cistern::replay
