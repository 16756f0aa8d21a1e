#include "tools/ctl/render.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

admin::StatsReply TwoStores() {
  admin::StatsReply reply;
  admin::PoolStats& pool = *reply.mutable_pool();
  pool.set_pool_id("000102030405060708090a0b0c0d0e0f");
  pool.set_epoch(3);
  pool.set_uptime_ms(130'000);
  pool.set_software_version("0.1.0");
  pool.set_build_mode("opt");
  pool.set_chunk_count(12'345);
  pool.set_lookups(10);
  pool.set_lookup_keys(200);
  pool.set_lookup_hits(50);
  pool.set_miss_absent(120);
  pool.set_miss_evicted(30);
  (*pool.mutable_evictions_by_cause())["evict_watermark"] = 7;
  (*pool.mutable_evictions_by_cause())["unheard_of"] = 1;
  for (int i = 0; i < 2; ++i) {
    admin::StoreStats& store = *reply.add_stores();
    store.set_index(static_cast<uint32_t>(i));
    store.set_name("127.0.0.1:761" + std::to_string(i));
    store.set_state(i == 0 ? "serving" : "dead");
    store.add_wires("tcp");
    (*store.mutable_bytes_by_wire())["tcp_in"] = 1 << 20;
    (*store.mutable_bytes_by_wire())["tcp_out"] = 3 << 20;
    admin::TierStats& tier = *store.add_tiers();
    tier.set_tier("dram");
    tier.set_fill(0.934);
    tier.set_used_bytes(500 << 20);
    tier.set_chunk_count(6000);
  }
  return reply;
}

TEST(RenderStatsTest, SaysWhyChunksWereMissedAndEvicted) {
  const std::string text = RenderStats(TwoStores());
  EXPECT_THAT(text, HasSubstr("pool 000102030405060708090a0b0c0d0e0f, epoch 3, up 2 min 10 s, "
                              "version 0.1.0 (opt)\n"));
  EXPECT_THAT(text, HasSubstr("10 of 200 keys; present 25.0 %"));
  EXPECT_THAT(text, HasSubstr("120 absent (never put, or removed), 30 evicted\n"));
  EXPECT_THAT(text, Not(HasSubstr("not serving")));
  EXPECT_THAT(text, HasSubstr("evicted            8 chunks\n"));
  EXPECT_THAT(text, HasSubstr("7 to keep stores under their high watermark\n"));
  EXPECT_THAT(text, HasSubstr("unheard_of       1\n"));
}

TEST(RenderStatsTest, SaysWhichWireCarriesTheBytesAndWhy) {
  admin::StatsReply reply = TwoStores();
  EXPECT_THAT(
      RenderStats(reply),
      HasSubstr("wire tcp           2.0 MiB in, 6.0 MiB out; the only wire that the stores offer"));
  reply.mutable_stores(0)->add_wires("shm");
  EXPECT_THAT(RenderStats(reply), HasSubstr("6.0 MiB out; taken where no faster wire serves both"));
  EXPECT_THAT(RenderStats(reply), HasSubstr("0 B in, 0 B out; taken by clients on a store's own "
                                            "host; offered by 1 of 2 stores"));
}

TEST(RenderStatsTest, SaysHowManyUseAWireAndWhyABetterOneIsNotOffered) {
  admin::StatsReply reply = TwoStores();
  (*reply.mutable_stores(0)->mutable_connections_by_wire())["tcp"] = 3;
  (*reply.mutable_stores(1)->mutable_connections_by_wire())["tcp"] = 4;
  reply.mutable_stores(0)->add_wires("rdma");
  reply.mutable_stores(1)->set_no_rdma("the link of mlx5_0:1 is down");
  const std::string text = RenderStats(reply);
  EXPECT_THAT(text, HasSubstr("wire tcp           7 connections, 2.0 MiB in, 6.0 MiB out; taken"));
  EXPECT_THAT(text, HasSubstr("wire rdma          0 B in, 0 B out; taken where client and store "
                              "both have it; offered by 1 of 2 stores (127.0.0.1:7611: the link of "
                              "mlx5_0:1 is down)"));
}

TEST(RenderStoresTest, ShowsOneRowATierAndTheStoreOnce) {
  admin::StatsReply reply = TwoStores();
  reply.mutable_stores(0)->add_tiers()->set_tier("ssd");
  const std::string text = RenderStores(reply);
  EXPECT_THAT(text, HasSubstr("0  127.0.0.1:7610  serving  dram  93.4 %  500.0 MiB   6,000"));
  EXPECT_THAT(text, HasSubstr("                             ssd    0.0 %"));
  EXPECT_THAT(text, HasSubstr("1  127.0.0.1:7611  dead     dram"));
}

TEST(RenderStoresTest, SaysSoWhenThereIsNone) {
  EXPECT_EQ(RenderStores(admin::StatsReply()), "no store has joined the pool\n");
  EXPECT_EQ(RenderSegments(admin::SegmentsReply()), "no store has a segment\n");
  EXPECT_EQ(RenderNamespaces(admin::StatsReply()), "no namespace has been opened\n");
}

TEST(RenderNamespacesTest, ExplainsAConflictAndHidesControlBytes) {
  admin::StatsReply reply;
  admin::NamespaceStats& ns = *reply.add_namespaces();
  ns.set_name("evil\x1b[2J");
  ns.set_conflict(true);
  ns.set_ttl_ms(60'000);
  const std::string text = RenderNamespaces(reply);
  EXPECT_THAT(text, HasSubstr("evil\\x1b[2J (CONFLICT)"));
  EXPECT_THAT(text, HasSubstr("1 min 0 s"));
  EXPECT_THAT(text, HasSubstr("cisternctl namespaces rm NAME"));
}

TEST(RenderChunksTest, ShowsReplicasLeaseAndPin) {
  admin::ListChunksReply reply;
  admin::ChunkInfo& chunk = *reply.add_chunks();
  chunk.set_id("00ff");
  chunk.set_length(65536);
  chunk.set_namespace_name("n");
  chunk.set_lease_left_ms(9'500);
  chunk.set_pinned(true);
  auto& first = *chunk.add_replicas();
  first.set_store("a");
  first.set_serving(true);
  auto& second = *chunk.add_replicas();
  second.set_store("b");
  second.set_store_index(1);
  EXPECT_EQ(RenderChunks(reply),
            "id    shard    length  namespace  stores      lease  pinned\n"
            "00ff      0  64.0 KiB  n          a,b (dead)    9 s  yes\n");
  EXPECT_THAT(RenderChunk(chunk), HasSubstr("replica                                        "
                                            "store 1 (b), "));
}

}  // namespace
}  // namespace cistern::ctl
