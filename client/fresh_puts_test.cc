#include "client/fresh_puts.h"

#include <cstring>

#include "base/test_util.h"

namespace cistern {
namespace {

ChunkName Name(uint32_t n, uint16_t shard = 0) {
  ChunkName name;
  std::memcpy(name.id.bytes.data(), &n, sizeof(n));
  name.shard = Shard(shard);
  return name;
}

class FreshPutsTest : public ::testing::Test {
 protected:
  bool Has(const ChunkName& name) const { return puts_.Find(name, clock_.Mono()).known(); }
  void Add(const ChunkName& name, uint16_t store = 1) {
    puts_.Add(name, LocalStore(store), clock_.Mono());
  }

  FakeClock clock_;
  FreshPuts puts_;
};

TEST_F(FreshPutsTest, KnowsWhatWasPutForAMoment) {
  EXPECT_FALSE(puts_.Any(clock_.Mono()));
  Add(Name(1), 7);
  Add(Name(1, 2), 8);
  EXPECT_TRUE(puts_.Any(clock_.Mono()));
  EXPECT_EQ(puts_.Find(Name(1), clock_.Mono()), LocalStore(7));
  EXPECT_EQ(puts_.Find(Name(1, 2), clock_.Mono()), LocalStore(8));
  EXPECT_FALSE(Has(Name(1, 1)));
  clock_.Advance(absl::Milliseconds(49));
  EXPECT_TRUE(Has(Name(1)));
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_FALSE(Has(Name(1)));
  EXPECT_FALSE(puts_.Any(clock_.Mono()));
}

TEST_F(FreshPutsTest, ChunkThatIsPutAgainHasItsTimeAgain) {
  Add(Name(1), 7);
  clock_.Advance(absl::Milliseconds(40));
  Add(Name(1), 8);
  clock_.Advance(absl::Milliseconds(40));
  Add(Name(2));  // the first one's time is over: its end is not the second's
  EXPECT_EQ(puts_.Find(Name(1), clock_.Mono()), LocalStore(8));
}

TEST_F(FreshPutsTest, WhatIsRemovedIsNotFresh) {
  Add(Name(1));
  Add(Name(2));
  puts_.Drop(Name(1));
  EXPECT_FALSE(Has(Name(1)));
  EXPECT_TRUE(Has(Name(2)));
  puts_.Clear();
  EXPECT_FALSE(Has(Name(2)));
}

TEST_F(FreshPutsTest, StaysBoundedAndKeepsTheLatest) {
  for (uint32_t n = 0; n < 3 * FreshPuts::kMost; ++n) Add(Name(n));
  size_t kept = 0;
  for (uint32_t n = 0; n < 3 * FreshPuts::kMost; ++n) kept += Has(Name(n)) ? 1 : 0;
  EXPECT_EQ(kept, FreshPuts::kMost);
  EXPECT_TRUE(Has(Name(3 * FreshPuts::kMost - 1)));
  EXPECT_FALSE(Has(Name(2 * FreshPuts::kMost - 1)));
}

}  // namespace
}  // namespace cistern
