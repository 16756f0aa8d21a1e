#include "tools/replay/demo_report.h"

#include <nlohmann/json.hpp>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ChunksHeldTest, WithoutAnEvictionItIsTheFinalNumber) {
  ChunksHeld held;
  held.Sample(10, 500, 0);
  held.Sample(20, 900, 0);
  EXPECT_EQ(held.mean(), 900);
}

// By hand: until request 20 nothing was evicted; 10 requests between 800 and 1000 chunks, then 30
// between 1000 and 1000: (10 x 900 + 30 x 1000) / 40.
TEST(ChunksHeldTest, WeighsByRequestsFromTheFirstEvictionOn) {
  ChunksHeld held;
  held.Sample(10, 500, 0);
  held.Sample(20, 800, 3);
  held.Sample(30, 1000, 9);
  held.Sample(30, 1000, 9);
  held.Sample(60, 1000, 9);
  EXPECT_EQ(held.mean(), 975);
}

DemoResult SomeResult() {
  DemoResult r;
  r.counts.requests = 4;
  r.counts.chunks_looked_up = 100;
  r.counts.chunk_hits = 60;
  r.counts.prefix_hits = 50;
  r.counts.prefix_hit_tokens = 25'000;
  r.counts.prompt_tokens = 51'200;
  r.counts.bytes_put = 4'000'000;
  r.counts.bytes_got = 8'000'000;
  // Two clients, a second of puts each.
  r.counts.put.Record(absl::Seconds(1));
  r.counts.put.Record(absl::Seconds(1));
  r.counts.get.Record(absl::Milliseconds(4));
  r.clients = 2;
  r.elapsed = absl::Seconds(2);
  r.wire = "tcp";
  r.mean_chunks_held = 975.5;
  r.chunk_bytes = 65536;
  auto& pool = *r.stats.mutable_pool();
  (*pool.mutable_evictions_by_cause())["evict_watermark"] = 7;
  (*pool.mutable_evictions_by_cause())["removed"] = 100;
  for (int i = 0; i < 2; ++i) {
    auto& store = *r.stats.add_stores();
    (*store.mutable_removed_by_cause())["evict_self"] = 2;
    (*store.mutable_bytes_by_wire())["tcp_in"] = 1;
    (*store.mutable_bytes_by_wire())["shm_in"] = 0;
    auto& tier = *store.add_tiers();
    tier.set_used_bytes(900);
    tier.set_capacity_bytes(1000);
    tier.set_chunk_count(9);
  }
  return r;
}

TEST(DemoJsonTest, HasExactlyTheDocumentedKeys) {
  const auto json = nlohmann::json::parse(DemoJson(SomeResult()));
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"requests",
                                         "chunks_looked_up",
                                         "chunk_hits",
                                         "chunk_hit_ratio",
                                         "prefix_hit_ratio",
                                         "prefix_hit_ratio_tokens",
                                         "mean_chunks_held",
                                         "bytes_put",
                                         "bytes_got",
                                         "put_bytes_per_second",
                                         "get_bytes_per_second",
                                         "verification_failures",
                                         "errors",
                                         "evictions",
                                         "stores",
                                         "lookup_seconds",
                                         "put_seconds",
                                         "get_seconds",
                                         "wire",
                                         "commit",
                                         "build_mode"}));
  EXPECT_EQ(json["chunk_hit_ratio"], 0.6);
  EXPECT_EQ(json["prefix_hit_ratio"], 0.5);
  EXPECT_EQ(json["prefix_hit_ratio_tokens"], 25'000.0 / 51'200);
  EXPECT_EQ(json["put_bytes_per_second"], 4e6);  // 4 MB in 2 summed seconds, by 2 at once
  EXPECT_EQ(json["evictions"], 7);
  EXPECT_EQ(json["stores"].size(), 2u);
  EXPECT_EQ(json["stores"][1]["fill"], 0.9);
  EXPECT_EQ(json["stores"][1]["chunks"], 9);
  EXPECT_EQ(json["stores"][1]["evictions"], 2);
  EXPECT_NEAR(json["get_seconds"]["p50"].get<double>(), 0.004, 1e-9);
  EXPECT_EQ(json["lookup_seconds"]["max"], 0.0);
}

TEST(DemoTableTest, ShowsWhatAVisitorCameFor) {
  const std::string table = DemoTable(SomeResult());
  EXPECT_THAT(table, HasSubstr("4 by 2 clients in 2.0 s (2 a second)"));
  EXPECT_THAT(table, HasSubstr("25,000 of 51,200 (48.8 %)"));
  EXPECT_THAT(table, HasSubstr("2 at 10,000 tokens a second"));
  EXPECT_THAT(table, HasSubstr("7 (watermark 7)"));
  EXPECT_THAT(table, HasSubstr("90.0 %, 90.0 %"));
}

TEST(DemoReportTest, NamesTheWiresThatCarriedBytes) {
  EXPECT_EQ(WiresUsed(SomeResult().stats), "tcp");
}

// 2,000 bytes of which 0.5 may be used; 100 bytes a chunk.
TEST(DemoReportTest, ChunksAtAShareOfTheBytes) {
  EXPECT_EQ(ChunksAtShare(SomeResult().stats, 0.5), 10u);
  EXPECT_EQ(ChunksAtShare(admin::StatsReply(), 0.5), 0u);
}

TEST(LeaksTest, AnEmptyPoolHasNone) {
  admin::StatsReply stats;
  stats.add_stores()->add_tiers()->set_capacity_bytes(1000);
  admin::SegmentsReply segments;
  auto& segment = *segments.add_segments();
  segment.set_allocatable_bytes(1000);
  segment.set_free_bytes(1000);
  segment.set_largest_free_extent_bytes(1000);
  EXPECT_THAT(Leaks(stats, segments), IsEmpty());
}

TEST(LeaksTest, NamesEachKind) {
  admin::StatsReply stats;
  stats.mutable_pool()->set_active_leases(1);
  stats.mutable_pool()->set_client_connections(2);
  auto& store = *stats.add_stores();
  store.set_name("a");
  store.set_connections(3);
  store.add_tiers()->set_used_bytes(4096);
  admin::SegmentsReply segments;
  auto& segment = *segments.add_segments();
  segment.set_segment_id("s");
  segment.set_allocatable_bytes(8192);
  segment.set_free_bytes(4096);
  segment.set_largest_free_extent_bytes(4096);
  EXPECT_THAT(
      Leaks(stats, segments),
      ElementsAre("1 leases", "2 client connections to the master", "4,096 bytes used in store a",
                  "3 client connections to store a", "4,096 bytes not free in segment s",
                  "free extents of segment s did not grow together again"));
}

}  // namespace
}  // namespace cistern::replay
