#include "tools/ctl/proto_json.h"

#include "gtest/gtest.h"
#include "proto/admin.pb.h"

namespace cistern::ctl {
namespace {

TEST(ProtoJsonTest, NumbersAreNumbersMapsAreSortedAndAbsentFieldsAreThere) {
  admin::EvictReply evict;
  evict.set_bytes(uint64_t{1} << 60);
  EXPECT_EQ(ToJson(evict, true), R"({"chunks":0,"bytes":1152921504606846976})");

  admin::ChunkInfo chunk;
  chunk.set_id("ab");
  chunk.add_replicas()->set_store("s");
  EXPECT_EQ(ToJson(chunk, true),
            R"({"id":"ab","shard":0,"length":0,"namespace_name":"","replicas":[{"store":"s",)"
            R"("store_index":0,"tiers":"","version":0,"serving":false}],"lease_left_ms":0,)"
            R"("pinned":false,"touched":false,"expiry_unix_s":0})");

  admin::PoolStats pool;
  (*pool.mutable_evictions_by_cause())["watermark"] = 2;
  (*pool.mutable_evictions_by_cause())["admin"] = 1;
  EXPECT_NE(ToJson(pool, true).find(R"("evictions_by_cause":{"admin":1,"watermark":2})"),
            std::string::npos);
}

TEST(ProtoJsonTest, MessageThatIsNotSetIsLeftOut) {
  admin::StatsReply stats;
  EXPECT_EQ(ToJson(stats, true), R"({"stores":[],"namespaces":[]})");
  EXPECT_EQ(ToJson(stats, true, "stores"), R"({"stores":[]})");
  stats.mutable_pool();
  EXPECT_NE(ToJson(stats, true).find(R"("pool":{)"), std::string::npos);
}

TEST(ProtoJsonTest, BytesAreHexAndTextIsEscaped) {
  admin::StatChunkRequest request;
  request.set_namespace_name("a\"\n");
  request.set_key(std::string("\x00\xff", 2));
  EXPECT_EQ(ToJson(request, true), R"({"namespace_name":"a\"\n","id":"","key":"00ff","shard":0})");
}

TEST(ProtoJsonTest, IsIndentedByDefault) {
  EXPECT_EQ(ToJson(admin::RemoveNamespaceReply()), "{\n  \"chunks_removed\": 0\n}");
}

}  // namespace
}  // namespace cistern::ctl
