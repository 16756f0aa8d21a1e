// Listings, held to their bounds.
#include "store/list_call.h"

#include "base/key_hash.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "store/calls_testing.h"

namespace cistern::store {
namespace {

using ListCallTest = CallsTestBase;

TEST_F(ListCallTest, ListingWhoseMatchesTakeTooLongIsGivenUp) {
  wire::NamespaceOptions options;
  options.set_keep_keys(true);
  Bind(options);
  const KeyHasher hasher(ns_id_);
  for (const char* const key : {"key 1", "key 2", "key 3"}) {
    const PutItem item{ChunkName{hasher.Hash(key), Shard(0)}, 4096, 0, key};
    PutAnswer answer;
    store_->BeginPut(ns_, {&item, 1}, {}, now_, {&answer, 1});
    ASSERT_TRUE(answer.slot);
    FillSlot(1, &answer.slot);
    ASSERT_OK(store_->Commit(std::move(answer.slot), {}, now_).status());
  }
  const auto list = [&] {
    wire::ListKeysRequest request;
    request.set_ns_ref(ref_);
    request.set_pattern("key");
    request.set_deadline_ms(10'000);
    Outcome outcome;
    ServeListKeys(context_, Call(transport::FrameType::kListKeys, request, &outcome));
    return outcome;
  };
  const Outcome sound = list();
  EXPECT_FALSE(sound.failed.has_value());
  wire::ListKeysReply reply;
  ASSERT_TRUE(reply.ParseFromString(sound.meta));
  EXPECT_EQ(reply.keys().size(), 15u);
  // All keys lie in one stretch; the third would be looked at 180 ms after its start.
  clock_.step = absl::Milliseconds(60);
  const Outcome slow = list();
  ASSERT_TRUE(slow.failed.has_value());
  EXPECT_EQ(slow.failed->code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cistern::store
