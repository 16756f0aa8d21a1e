// Random histories with faults: cut sessions, lost and doubled messages, stores and masters that
// are killed and come back. The seed of a failing run is printed and is in the test's name.
#include <cstring>
#include <string>

#include "base/build_info.h"
#include "base/columns.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "master/pool_state.h"
#include "tests/simulation/sim_cluster.h"

namespace cistern::simulation {
namespace {

KeyId IdOf(uint64_t n) {
  KeyId id;
  const uint64_t words[2] = {replay::Mix64(n + 1), replay::Mix64(~n)};
  std::memcpy(id.bytes.data(), words, sizeof(words));
  return id;
}

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), cluster_(MakeOptions(seed, random_)) {}

  void Run(int steps) {
    cluster_.Run(absl::Seconds(1));
    for (int i = 0; i < steps; ++i) Step();
    // Quiescence: what was cut comes back, what was sent arrives, what was told is settled.
    cluster_.Run(absl::Seconds(30));
    ASSERT_TRUE(cluster_.AllConnected());
    EXPECT_EQ(cluster_.Differences(), "");
    const master::PoolView view = cluster_.core().Pool(cluster_.events().now());
    EXPECT_EQ(view.active_leases, 0u);
    EXPECT_EQ(view.leased_bytes, 0u);
    EXPECT_EQ(view.in_progress_puts, 0u);
    EXPECT_EQ(view.pending_removals, 0u);
  }

 private:
  static SimCluster::Options MakeOptions(uint64_t seed, replay::Random& random) {
    SimCluster::Options options;
    options.seed = seed * 31 + 7;
    options.stores = 1 + static_cast<int>(random.Below(4));
    options.pool_bytes = static_cast<uint64_t>(options.stores) * (4 << 20);
    options.chunk_bytes = 16 << 10;
    options.page_records = 1 + random.Below(64);
    // Some histories have logs that overflow.
    if (random.Below(3) == 0) options.log_records = 64;
    return options;
  }

  void Step() {
    switch (random_.Below(40)) {
      case 0:
        return cluster_.CutSession(AnyStore());
      case 1:
        return cluster_.RestartStore(AnyStore(), /*keep_chunks=*/random_.Below(2) == 0);
      case 2:
        return cluster_.LoseNext(AnyStore());
      case 3:
        return cluster_.DoubleNext(AnyStore());
      case 4:
        if (random_.Below(4) == 0) cluster_.RestartMaster();
        return;
      case 5: {
        cluster_.Remove(SomeChain(), /*force=*/random_.Below(2) == 0, /*all=*/false);
        return;
      }
      default:
        return Request();
    }
  }

  void Request() {
    const std::vector<KeyId> ids = SomeChain();
    const wire::LookupReply found = cluster_.Lookup(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (BitmapGet(found.present(), i)) ExpectHeldOnce(found.stores(), i, ids[i]);
    }
    if (!found.lease_id().empty() && random_.Below(2) == 0) cluster_.Release(found.lease_id());
    const wire::PlaceReply placed = cluster_.Place(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (BitmapGet(placed.present(), i)) {
        ExpectHeldOnce(placed.stores(), i, ids[i]);
        continue;
      }
      const StoreIndex store = StoreAt(placed.stores(), i);
      if (store.value == StoreIndex::kNone) continue;
      cluster_.Put(store, {ids[i]}, absl::Microseconds(static_cast<int64_t>(random_.Below(20000))));
    }
    // Sometimes the next thing, a fault perhaps, happens while commands are on their way.
    if (random_.Below(3) != 0) {
      cluster_.Run(absl::Microseconds(static_cast<int64_t>(random_.Exponential(20000))));
    }
  }

  void ExpectHeldOnce(const std::string& column, size_t i, const KeyId& id) {
    const StoreIndex index = StoreAt(column, i);
    SimStore* store = cluster_.StoreOf(index);
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->EverHeld({id, Shard(0)}))
        << "a lookup named " << store->name() << " for " << id.ToHex() << ", which never had it";
  }

  static StoreIndex StoreAt(const std::string& column, size_t i) {
    StoreIndex store;
    std::memcpy(&store.value, column.data() + 2 * i, 2);
    return store;
  }
  size_t AnyStore() { return random_.Below(cluster_.stores()); }
  // A chain of some of 3,000 chunks, more than the pool can hold.
  std::vector<KeyId> SomeChain() {
    const uint64_t first = random_.Below(150) * 20;
    std::vector<KeyId> ids;
    for (uint64_t n = 1 + random_.Below(20), i = 0; i < n; ++i) ids.push_back(IdOf(first + i));
    return ids;
  }

  replay::Random random_;
  SimCluster cluster_;
};

class FaultSimulationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(FaultSimulationTest, IndexEqualsStoresWhenAllIsQuiet) {
  History(GetParam()).Run(400);
  if (HasFailure()) ADD_FAILURE() << "failing seed: " << GetParam();
}

// The sanitizers take 20 times as long.
INSTANTIATE_TEST_SUITE_P(Seeds, FaultSimulationTest,
                         testing::Range<uint64_t>(1, BuildMode() == "opt" ? 41 : 9),
                         [](const auto& info) { return "Seed" + std::to_string(info.param); });

}  // namespace
}  // namespace cistern::simulation
