// The core: what an administrator lists, evicts and removes.
#include "master/master_core.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kMiB = TestPool::kMiB;
constexpr uint64_t kChunk = 65536;

TEST(AdminTest, ListsEveryChunkOnceByPages) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 10, 1)));
  uint64_t page = 0;
  std::vector<ChunkView> chunks;
  int pages = 0;
  do {
    t.core().ListChunks(NamespaceIndex(NamespaceIndex::kNone), &page, 4, t.now, &chunks);
    ++pages;
  } while (page != 0);
  EXPECT_EQ(pages, 3);
  ASSERT_EQ(chunks.size(), 10u);
  EXPECT_EQ(chunks[9].id, TestId(10));
  EXPECT_EQ(chunks[9].replicas[0].version, Version(10));
}

TEST(AdminTest, EvictsOfOneNamespaceWhatIsNotLeased) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 4, 1)));
  t.Lookup({2});
  uint64_t page = 0;
  const auto evicted = t.core().EvictSlice(NamespaceIndex(0), UINT64_MAX, &page, t.now);
  EXPECT_EQ(evicted.chunks, 3u);
  EXPECT_EQ(evicted.bytes, 3 * kChunk);
  EXPECT_EQ(page, 0u);
  EXPECT_EQ(t.Evicted(s), (std::vector{TestId(1), TestId(3), TestId(4)}));
}

TEST(AdminTest, EvictsTheOldestOfThePool) {
  TestPool t;
  const SessionId a = t.Connect(0, 64 * kMiB);
  const SessionId b = t.Connect(1, 64 * kMiB);
  ASSERT_OK(t.SendRecords(b, 1, Puts(100, 2, 1)));
  t.now = t.now + absl::Seconds(5);
  ASSERT_OK(t.SendRecords(a, 1, Puts(1, 2, 1)));
  uint64_t page = 0;
  const auto evicted =
      t.core().EvictSlice(NamespaceIndex(NamespaceIndex::kNone), kChunk, &page, t.now);
  EXPECT_EQ(evicted.chunks, 1u);
  EXPECT_EQ(t.Evicted(b), std::vector{TestId(100)});
  EXPECT_TRUE(t.Evicted(a).empty());
}

TEST(AdminTest, RemovedNamespaceTellsTheStores) {
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 4, 1)));
  t.Output(s);
  ASSERT_OK_AND_ASSIGN(const uint64_t chunks, t.core().RemoveNamespace("test"));
  EXPECT_EQ(chunks, 4u);
  const auto out = t.Output(s);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].drop_namespace().namespace_id(), t.ns().id());
  EXPECT_TRUE(t.state().state.namespaces.empty());
  EXPECT_THAT(t.core().RemoveNamespace("test"), StatusIs(absl::StatusCode::kNotFound));
}

TEST(AdminTest, NamespaceRemovedWhileAStoreWasAwayGoesWhenItIsBack) {
  TestPool t;
  SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 2, 1)));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK(t.core().RemoveNamespace("test").status());
  s = t.Connect(0, 64 * kMiB);  // its hello names the namespace
  bool told = false;
  for (const wire::MasterMessage& message : t.Output(s)) {
    told = told || message.drop_namespace().namespace_id() == t.ns().id();
  }
  EXPECT_TRUE(told);
}

TEST(AdminTest, NamespaceRemovedWhileAStoreWasAwayGoesUnderTheNextMasterToo) {
  MemoryStateStore state;
  TestPool t;
  const SessionId s = t.Connect(0, 64 * kMiB);
  ASSERT_OK(t.SendRecords(s, 1, Puts(1, 2, 1)));
  t.core().OnSessionClosed(s, t.now);
  ASSERT_OK(t.core().RemoveNamespace("test").status());
  state.state = t.state().state;
  MasterCore next(MasterOptions(), state);
  ASSERT_OK(next.Start(t.now));
  EXPECT_TRUE(next.FindNamespace("", "test").none());
  EXPECT_TRUE(next.Namespaces().empty());
  const auto opened = next.OnHello(t.Hello(0, 64 * kMiB, 1), t.now);
  ASSERT_OK(opened.status());
  std::vector<wire::MasterMessage> out;
  next.TakeOutgoing(opened->session, 100, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].drop_namespace().namespace_id(), t.ns().id());
  // Opened anew it is a namespace like any other.
  wire::OpenNamespaceRequest request;
  request.set_name("test");
  request.set_fingerprint("fp");
  wire::OpenNamespaceReply reply;
  ASSERT_OK(next.OpenNamespace(request, &reply));
  EXPECT_TRUE(reply.created());
  ASSERT_EQ(state.state.namespaces.size(), 1u);
  EXPECT_FALSE(state.state.namespaces[0].removed());
}

}  // namespace
}  // namespace cistern::master
