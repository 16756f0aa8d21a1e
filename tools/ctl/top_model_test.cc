#include "tools/ctl/top_model.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

admin::StoreStats* AddStore(admin::StatsReply* reply, const std::string& name, uint64_t uptime_ms,
                            uint64_t puts, uint64_t hits, uint64_t misses) {
  admin::StoreStats* store = reply->add_stores();
  store->set_store_id("id-" + name);
  store->set_name(name);
  store->set_state("serving");
  store->set_uptime_ms(uptime_ms);
  store->set_put_chunks(puts);
  store->set_get_hits(hits);
  store->set_get_misses(misses);
  return store;
}

admin::StatsReply Reply(uint64_t uptime_ms, uint64_t epoch = 1) {
  admin::StatsReply reply;
  reply.mutable_pool()->set_uptime_ms(uptime_ms);
  reply.mutable_pool()->set_epoch(epoch);
  return reply;
}

TEST(TopModelTest, FirstAnswerHasLevelsAndNoRates) {
  TopModel model;
  admin::StatsReply reply = Reply(10'000);
  reply.mutable_pool()->set_lookup_keys(500);
  admin::StoreStats* store = AddStore(&reply, "a", 9000, 100, 50, 0);
  admin::TierStats* tier = store->add_tiers();
  tier->set_used_bytes(30);
  tier->set_capacity_bytes(40);
  model.Update(reply);
  EXPECT_FALSE(model.view().lookup_keys.has_value());
  ASSERT_EQ(model.view().stores.size(), 1u);
  EXPECT_FALSE(model.view().stores[0].puts.has_value());
  EXPECT_FALSE(model.view().stores[0].hit_share.has_value());
  EXPECT_EQ(model.view().stores[0].fill, 0.75);
  EXPECT_FALSE(model.view().puts.has_value());
}

TEST(TopModelTest, RatesAreOverTheAnswerersOwnTime) {
  TopModel model;
  admin::StatsReply reply = Reply(10'000);
  reply.mutable_pool()->set_lookups(10);
  reply.mutable_pool()->set_lookup_keys(500);
  reply.mutable_pool()->set_lookup_hits(100);
  admin::StoreStats* store = AddStore(&reply, "a", 9000, 100, 50, 10);
  (*store->mutable_bytes_by_wire())["tcp_in"] = 1000;
  (*store->mutable_bytes_by_wire())["shm_in"] = 100;
  (*store->mutable_removed_by_cause())["evict_self"] = 7;
  model.Update(reply);
  reply = Reply(12'000);  // two seconds later
  reply.mutable_pool()->set_lookups(14);
  reply.mutable_pool()->set_lookup_keys(900);
  reply.mutable_pool()->set_lookup_hits(400);
  store = AddStore(&reply, "a", 9500, 150, 80, 20);  // half a second by the store's
  (*store->mutable_bytes_by_wire())["tcp_in"] = 3000;
  (*store->mutable_bytes_by_wire())["shm_in"] = 100;
  (*store->mutable_bytes_by_wire())["shm_out"] = 50;
  (*store->mutable_removed_by_cause())["evict_self"] = 7;
  (*store->mutable_removed_by_cause())["expired"] = 3;
  model.Update(reply);
  const TopView& view = model.view();
  EXPECT_EQ(view.lookups, 2);
  EXPECT_EQ(view.lookup_keys, 200);
  EXPECT_EQ(view.hit_share, 0.75);  // 300 of 400
  const TopStore& row = view.stores[0];
  EXPECT_EQ(row.puts, 100);
  EXPECT_EQ(row.gets, 80);  // 30 hits and 10 misses in half a second
  EXPECT_EQ(row.hit_share, 0.75);
  EXPECT_EQ(row.bytes_in, 4000);
  EXPECT_EQ(row.bytes_out, 100);
  EXPECT_EQ(row.evictions, 6);
  EXPECT_THAT(row.evictions_by_cause, ElementsAre(Pair("expired", 6.0)));
  EXPECT_EQ(view.puts, 100);
}

TEST(TopModelTest, WithoutANewHeartbeatTheRatesStay) {
  TopModel model;
  admin::StatsReply reply = Reply(1000);
  AddStore(&reply, "a", 1000, 0, 0, 0);
  model.Update(reply);
  reply = Reply(2000);
  AddStore(&reply, "a", 2000, 50, 0, 0);
  model.Update(reply);
  reply = Reply(2100);
  AddStore(&reply, "a", 2000, 50, 0, 0)->set_leased_bytes(5);
  model.Update(reply);
  EXPECT_EQ(model.view().stores[0].puts, 50);
  EXPECT_EQ(model.view().stores[0].leased_bytes, 5u);
}

TEST(TopModelTest, StoreThatWasStartedAgainCountsFromZero) {
  TopModel model;
  admin::StatsReply reply = Reply(1000);
  AddStore(&reply, "a", 900'000, 5000, 0, 0);
  model.Update(reply);
  reply = Reply(2000);
  AddStore(&reply, "a", 500, 10, 0, 0);
  model.Update(reply);
  EXPECT_EQ(model.view().stores[0].puts, 20);
}

TEST(TopModelTest, DeadStoreHasNoRates) {
  TopModel model;
  admin::StatsReply reply = Reply(1000);
  AddStore(&reply, "a", 1000, 0, 0, 0);
  model.Update(reply);
  reply = Reply(2000);
  AddStore(&reply, "a", 2000, 50, 0, 0);
  model.Update(reply);
  reply = Reply(3000);
  AddStore(&reply, "a", 2000, 50, 0, 0)->set_state("dead");
  model.Update(reply);
  EXPECT_FALSE(model.view().stores[0].puts.has_value());
  EXPECT_FALSE(model.view().puts.has_value());
  // Back again: two heartbeats make a rate.
  reply = Reply(4000);
  AddStore(&reply, "a", 4000, 100, 0, 0);
  model.Update(reply);
  EXPECT_FALSE(model.view().stores[0].puts.has_value());
  reply = Reply(5000);
  AddStore(&reply, "a", 5000, 110, 0, 0);
  model.Update(reply);
  EXPECT_EQ(model.view().stores[0].puts, 10);
}

TEST(TopModelTest, MastersRestartIsShownAndStoresGoOn) {
  TopModel model;
  admin::StatsReply reply = Reply(600'000, 3);
  reply.mutable_pool()->set_lookups(1000);
  AddStore(&reply, "a", 600'000, 100, 0, 0);
  admin::NamespaceStats* ns = reply.add_namespaces();
  ns->set_id("n");
  ns->set_lookup_keys(900);
  model.Update(reply);
  EXPECT_FALSE(model.view().restarted_from.has_value());
  reply = Reply(2000, 4);
  reply.mutable_pool()->set_lookups(6);
  AddStore(&reply, "a", 605'000, 150, 0, 0);
  ns = reply.add_namespaces();
  ns->set_id("n");
  ns->set_lookup_keys(8);
  model.Update(reply);
  EXPECT_EQ(model.view().restarted_from, 3u);
  EXPECT_EQ(model.view().lookups, 3);          // 6 in the two seconds that it runs
  EXPECT_EQ(model.view().stores[0].puts, 10);  // 50 in five
  EXPECT_EQ(model.view().namespaces[0].lookup_keys, 4);
  for (int i = 0; i < TopModel::kShowRestart; ++i) {
    EXPECT_TRUE(model.view().restarted_from.has_value()) << i;
    model.Update(Reply(3000 + 1000 * static_cast<uint64_t>(i), 4));
  }
  EXPECT_FALSE(model.view().restarted_from.has_value());
}

TEST(TopModelTest, NamespaceOpenedSinceBeganAtZero) {
  TopModel model;
  model.Update(Reply(1000));
  admin::StatsReply reply = Reply(3000);
  admin::NamespaceStats* ns = reply.add_namespaces();
  ns->set_id("n");
  ns->set_lookup_keys(100);
  ns->set_lookup_hits(25);
  ns->set_put_chunks(10);
  ns->set_put_bytes(4000);
  ns->set_evicted_chunks(2);
  model.Update(reply);
  const TopNamespace& row = model.view().namespaces[0];
  EXPECT_EQ(row.lookup_keys, 50);
  EXPECT_EQ(row.hit_share, 0.25);
  EXPECT_EQ(row.puts, 5);
  EXPECT_EQ(row.put_bytes, 2000);
  EXPECT_EQ(row.evictions, 1);
}

TEST(TopModelTest, SortsByWhatIsAskedFor) {
  TopModel model;
  admin::StatsReply reply = Reply(1000);
  for (const std::string name : {"b", "a", "c"}) AddStore(&reply, name, 1000, 0, 0, 0);
  model.Update(reply);
  reply = Reply(2000);
  AddStore(&reply, "b", 2000, 10, 5, 5);
  AddStore(&reply, "a", 2000, 10, 9, 1);
  AddStore(&reply, "c", 2000, 30, 0, 0);
  model.Update(reply);
  const auto names = [&](TopSort sort) {
    model.Sort(sort);
    std::string out;
    for (const TopStore& store : model.view().stores) out += store.name;
    return out;
  };
  EXPECT_EQ(names(TopSort::kName), "abc");
  EXPECT_EQ(names(TopSort::kPuts), "cab");
  EXPECT_EQ(names(TopSort::kHits), "abc");  // c asked for nothing
  EXPECT_EQ(names(TopSort::kGets), "abc");
  for (TopSort sort = TopSort::kName;;) {
    EXPECT_EQ(ParseTopSort(TopSortName(sort)), sort);
    sort = NextTopSort(sort);
    if (sort == TopSort::kName) break;
  }
  EXPECT_FALSE(ParseTopSort("colour").has_value());
}

}  // namespace
}  // namespace cistern::ctl
