#include "transport/rdma/gid.h"

#include "gtest/gtest.h"

namespace cistern::transport::rdma {
namespace {

Gid Ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
const Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
const Gid kGlobal = {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

GidEntry Entry(int index, const Gid& gid, GidType type) { return {index, gid, type, "eth0"}; }

TEST(GidTest, TellsAddressesApart) {
  EXPECT_TRUE(IsIpv4(Ipv4(10, 0, 0, 1)));
  EXPECT_FALSE(IsIpv4(kGlobal));
  EXPECT_FALSE(IsIpv4(kLinkLocal));
  EXPECT_TRUE(IsLinkLocal(kLinkLocal));
  EXPECT_FALSE(IsLinkLocal(kGlobal));
  EXPECT_FALSE(IsLinkLocal(Ipv4(169, 254, 0, 1)));
  EXPECT_TRUE(IsZero(Gid{}));
  EXPECT_FALSE(IsZero(kGlobal));
  EXPECT_EQ(GidText(Ipv4(10, 0, 0, 1)), "10.0.0.1");
  EXPECT_EQ(GidText(kGlobal), "fd77::1");
  EXPECT_EQ(GidText(kLinkLocal), "fe80::200:ff:fe00:1");
}

// The table of a RoCE port as kernels fill it: each address as v1, then as v2.
TEST(GidTest, PrefersIpv4OfRoceV2) {
  const std::vector<GidEntry> table = {
      Entry(0, kLinkLocal, GidType::kRoceV1),        Entry(1, kLinkLocal, GidType::kRoceV2),
      Entry(2, kGlobal, GidType::kRoceV1),           Entry(3, kGlobal, GidType::kRoceV2),
      Entry(4, Ipv4(10, 0, 0, 1), GidType::kRoceV1), Entry(5, Ipv4(10, 0, 0, 1), GidType::kRoceV2),
      Entry(6, Ipv4(10, 0, 0, 2), GidType::kRoceV2)};
  EXPECT_EQ(PreferredGid(table)->index, 5);
}

TEST(GidTest, PrefersAGlobalAddressToALinkLocalOneAndV2ToV1) {
  EXPECT_EQ(
      PreferredGid({Entry(1, kLinkLocal, GidType::kRoceV2), Entry(3, kGlobal, GidType::kRoceV2),
                    Entry(4, Ipv4(10, 0, 0, 1), GidType::kRoceV1)})
          ->index,
      3);
  EXPECT_EQ(PreferredGid({Entry(0, Ipv4(10, 0, 0, 1), GidType::kRoceV1),
                          Entry(1, kLinkLocal, GidType::kRoceV2)})
                ->index,
            1);
}

TEST(GidTest, TakesTheFirstOnInfiniBandAndNoneOfNone) {
  EXPECT_EQ(PreferredGid({Entry(1, kGlobal, GidType::kInfiniband),
                          Entry(0, kLinkLocal, GidType::kInfiniband)})
                ->index,
            0);
  EXPECT_EQ(PreferredGid({}), nullptr);
}

}  // namespace
}  // namespace cistern::transport::rdma
