#include "client/ticket.h"

#include "base/test_util.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

LookupResult Example() {
  LookupResult result;
  result.ns.bytes.fill(0xAA);
  result.shard_first = 2;
  result.shard_count = 2;
  result.store_ids.resize(2);
  result.store_ids[1].bytes.fill(0x11);
  result.leases.resize(1);
  result.leases[0].bytes.fill(0x22);
  result.lease_time = absl::Milliseconds(9'500);
  result.ids.resize(3);
  result.ids[2].bytes.fill(0x33);
  result.stores = {0, 1, 1, 1, 0, LookupResult::kNoStore};
  FillPresence(&result);
  return result;
}

TEST(TicketTest, ComesBackWhole) {
  const LookupResult sent = Example();
  const std::string ticket = sent.Serialize();
  // 40 + 2 stores + 1 lease + 3 keys of 16, 6 chunks of 2, the checksum.
  EXPECT_EQ(ticket.size(), 40u + 6 * 16 + 12 + 4);
  ASSERT_OK_AND_ASSIGN(const LookupResult got, ParseTicket(ticket));
  EXPECT_EQ(got.ns, sent.ns);
  EXPECT_EQ(got.shard_first, 2);
  EXPECT_EQ(got.shard_count, 2);
  EXPECT_EQ(got.store_ids, sent.store_ids);
  EXPECT_EQ(got.leases, sent.leases);
  EXPECT_EQ(got.lease_time, sent.lease_time);
  EXPECT_FALSE(got.lease_shortened);
  EXPECT_EQ(got.ids, sent.ids);
  EXPECT_EQ(got.stores, sent.stores);
  EXPECT_EQ(got.leading_run, 2u);
  EXPECT_THAT(got.present, ElementsAre(true, true, false));
}

TEST(TicketTest, EmptyLookupHasATicketToo) {
  ASSERT_OK_AND_ASSIGN(const LookupResult got, ParseTicket(LookupResult().Serialize()));
  EXPECT_TRUE(got.ids.empty());
  EXPECT_EQ(got.leading_run, 0u);
}

TEST(TicketTest, LeadingRunEndsAtTheFirstAbsentShard) {
  LookupResult result;
  result.shard_count = 1;
  result.ids.resize(4);
  result.stores = {0, LookupResult::kNoStore, 0, 0};
  FillPresence(&result);
  EXPECT_EQ(result.leading_run, 1u);
  EXPECT_THAT(result.present, ElementsAre(true, false, true, true));
}

TEST(TicketTest, AnyDamageIsRefused) {
  const std::string ticket = Example().Serialize();
  for (size_t i = 0; i < ticket.size(); ++i) {
    std::string bad = ticket;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THAT(ParseTicket(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << "byte " << i;
    EXPECT_THAT(ParseTicket(ticket.substr(0, i)), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(ParseTicket(ticket + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cistern
