#include "tools/ctl/top_render.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cistern::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopView View() {
  TopView view;
  view.epoch = 4;
  view.uptime = absl::Minutes(2) + absl::Seconds(10);
  view.chunks = 12'345;
  view.used_bytes = 3 << 20;
  view.capacity_bytes = 4 << 20;
  view.leased_bytes = 1 << 20;
  view.lease_limit_bytes = 2 << 20;
  view.leases = 1;
  view.connections = 3;
  view.lookups = 1.5;
  view.lookup_keys = 1500;
  view.hit_share = 0.25;
  view.puts = 12.4;
  view.evictions_by_cause["evict_watermark"] = 2500;
  TopStore store;
  store.name = "store\x1b[2J";
  store.id = "ab";
  store.state = "serving";
  store.fill = 0.75;
  store.puts = 12.4;
  store.evictions = 2500;
  store.evictions_by_cause["evict_watermark"] = 2500;
  store.leased_bytes = 1;
  store.lease_limit_bytes = 4;
  view.stores.push_back(store);
  store.name = "quiet";
  store.puts = store.evictions = std::nullopt;
  store.evictions_by_cause.clear();
  view.stores.push_back(store);
  TopNamespace ns;
  ns.name = "llama";
  ns.lookup_keys = 0;
  view.namespaces.push_back(ns);
  return view;
}

TopFrame Frame() {
  TopFrame frame;
  frame.master = "10.0.0.1:7601";
  frame.now = absl::FromUnixSeconds(1'700'000'000);
  frame.sort = TopSort::kPuts;
  return frame;
}

TEST(TopRenderTest, ShowsPoolStoresAndNamespaces) {
  const std::string page = absl::StrJoin(RenderTop(View(), Frame()), "\n");
  EXPECT_THAT(page, HasSubstr("10.0.0.1:7601, epoch 4, up 2 min 10 s"));
  EXPECT_THAT(page, HasSubstr("2 stores, 12,345 chunks, 3.0 MiB of 4.0 MiB (75.0 %)"));
  EXPECT_THAT(page, HasSubstr("leased 1.0 MiB of 2.0 MiB (50.0 %) in 1 lease; 3 connections"));
  EXPECT_THAT(page, HasSubstr("lookups/s 1.5, keys/s 1,500, hits 25.0 %"));
  EXPECT_THAT(page, HasSubstr("evictions/s: watermark 2,500"));
  EXPECT_THAT(page, HasSubstr("llama"));
  // What a store is called cannot command the terminal.
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("NO ANSWER")));
}

TEST(TopRenderTest, TellsTroubleAndRestarts) {
  TopView view = View();
  view.restarted_from = 3;
  TopFrame frame = Frame();
  EXPECT_THAT(absl::StrJoin(RenderTop(view, frame), "\n"),
              HasSubstr("THE MASTER WAS STARTED AGAIN: epoch 3 before, 4 now"));
  frame.trouble = "no master answers at 10.0.0.1:7601";
  const std::string page = absl::StrJoin(RenderTop(view, frame), "\n");
  EXPECT_THAT(page, HasSubstr("NO ANSWER: no master answers"));
  EXPECT_THAT(page, HasSubstr("quiet"));  // the last that was known
}

TEST(TopRenderTest, JsonIsOneObjectALine) {
  const std::string line = TopJson(View(), Frame());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20+00:00");
  EXPECT_EQ(json["pool"]["lookup_hit_share"], 0.25);
  EXPECT_TRUE(json["pool"]["gets_per_second"].is_null());
  EXPECT_EQ(json["stores"][0]["gone_per_second_by_cause"]["evict_watermark"], 2500);
  EXPECT_TRUE(json["stores"][1]["puts_per_second"].is_null());
  EXPECT_EQ(json["namespaces"][0]["lookup_keys_per_second"], 0);
  TopFrame frame = Frame();
  frame.trouble = "gone";
  const auto failed = nlohmann::json::parse(TopJson(View(), frame));
  EXPECT_EQ(failed["error"], "gone");
  EXPECT_FALSE(failed.contains("stores"));
}

TEST(TopRenderTest, CutsBetweenCharacters) {
  EXPECT_EQ(CutToWidth("abc", 3), "abc");
  EXPECT_EQ(CutToWidth("abc", 2), "ab");
  EXPECT_EQ(CutToWidth("a\xC3\xA9z", 2), "a\xC3\xA9");
  EXPECT_EQ(CutToWidth("\xC3\xA9\xC3\xA9", 1), "\xC3\xA9");
  EXPECT_EQ(CutToWidth("", 0), "");
}

}  // namespace
}  // namespace cistern::ctl
