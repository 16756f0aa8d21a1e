// A pool under load while its processes are stopped, killed at random points and replaced, again
// and again.
//   chaos_test [--minutes N] [--seed N]
// Everything random follows from the seed, which is printed; threads and the kernel still
// interleave as they like. What always holds: no wrong byte; every call ends in time; after the
// trouble the pool serves, and nothing is left when everything is removed.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "tests/integration/trouble/trouble_fixture.h"

namespace cistern {
namespace {

double g_minutes = 0.25;
uint64_t g_seed = 20'260'401;

constexpr absl::Duration kDeadline = absl::Milliseconds(500);
constexpr int kClients = 3;
constexpr int kKeys = 60;

constexpr const char* kStorePoints[] = {
    "store.put.asked",        "store.put.reserved",  "store.put.received",  "store.header.filled",
    "store.header.committed", "store.put.committed", "store.put.answered",  "store.get.acquired",
    "store.get.streaming",    "store.session.delta", "store.session.evict", "store.session.hello",
    "store.snapshot.begin",   "store.snapshot.page", "store.snapshot.end",
};
constexpr const char* kMasterPoints[] = {
    "master.lookup.decided",  "master.place.decided", "master.session.delta",
    "master.session.applied", "master.session.hello", "master.session.welcomed",
    "master.snapshot.page",   "master.snapshot.end",  "master.request",
};

class ChaosTest : public TroubleFixture {
 protected:
  // Lengths and bytes follow from the key: every get can be checked, whoever put it.
  static uint64_t BytesOf(int key) {
    return key % 10 == 0 ? uint64_t{2'000'000} + static_cast<uint64_t>(key)
                         : uint64_t{4'096} + static_cast<uint64_t>(key) * 1'000;
  }

  // One client's thread.
  void Work(int number) {
    std::mt19937_64 random(g_seed * 100 + static_cast<uint64_t>(number));
    ClientOptions connect = ConnectOptions();
    connect.lazy = true;
    auto client = Client::Connect(connect);
    ASSERT_OK(client);
    std::shared_ptr<Namespace> ns;
    auto buffer = (*client)->AllocateBuffer(8 << 20);
    ASSERT_OK(buffer);
    char* const out = static_cast<char*>(buffer->data());
    char* const in = out + (4 << 20);
    while (!stop_) {
      if (ns == nullptr) {
        CallOptions call;
        call.deadline = kDeadline;
        auto opened = (*client)->OpenNamespace("test", "v1", {}, call);
        if (opened.ok()) ns = *std::move(opened);
        continue;
      }
      const int key = static_cast<int>(random() % kKeys);
      const uint64_t bytes = BytesOf(key);
      const KeyId id = *ns->Hash("chaos " + std::to_string(key));
      const MonoTime start = Clock::Real().Mono();
      const uint64_t what = random() % 20;
      if (what < 6) {
        FillPattern(static_cast<uint64_t>(key), out, bytes);
        const Span span{out, bytes};
        const PutItem item{.id = id, .memory = {.spans = {&span, 1}}};
        PutOptions options;
        options.deadline = kDeadline;
        const ChunkCode code = ns->BatchPut({&item, 1}, options).items[0].code;
        Count(code == ChunkCode::kOk || code == ChunkCode::kPresent);
      } else if (what < 16) {
        std::memset(in, 0, bytes);
        const Span span{in, bytes};
        const GetItem item{.id = id, .memory = {.spans = {&span, 1}}};
        GetOptions options;
        options.deadline = kDeadline;
        BatchResult result;
        if (what % 2 == 0) {
          result = ns->BatchGet({&item, 1}, options);
        } else {
          auto pending = ns->BatchGetAsync({&item, 1}, options);
          if (random() % 8 == 0) pending.Cancel();
          result = pending.Take();
        }
        const ChunkCode code = result.items[0].code;
        Count(code == ChunkCode::kOk);
        if (code == ChunkCode::kOk &&
            std::string_view(in, bytes) != PatternBytes(static_cast<uint64_t>(key), bytes)) {
          ++wrong_;
          ADD_FAILURE() << "wrong bytes of key " << key;
        }
      } else if (what < 19) {
        LookupOptions options;
        options.deadline = kDeadline;
        options.lease_time = absl::Milliseconds(300);
        Count(ns->Lookup({&id, 1}, options).ok());
      } else {
        RemoveOptions options;
        options.deadline = kDeadline;
        options.force = true;
        Count(ns->Remove({&id, 1}, options).status.ok());
      }
      const int64_t over = absl::ToInt64Milliseconds(Clock::Real().Mono() - start - kDeadline);
      if (over > worst_over_ms_) worst_over_ms_ = over;
      // Far beyond what a busy host explains.
      EXPECT_LT(over, 5'000) << "a call of kind " << what << " hung";
    }
  }
  void Count(bool good) { (good ? good_ : failed_).fetch_add(1); }

  // One piece of trouble, and its end.
  void Trouble(std::mt19937_64& random) {
    const int daemon = static_cast<int>(random() % 4);  // the master, three stores
    // The last one's point may have acted after we had looked.
    if (HasEnded(pid(daemon))) Replace(daemon);
    Continue(daemon);
    const auto wait = [&random](int most_ms) {
      Clock::Real().SleepFor(absl::Milliseconds(random() % static_cast<uint64_t>(most_ms)));
    };
    switch (random() % 5) {
      case 0:  // stops for a while, longer than deadlines at times
        Halt(daemon);
        wait(2'000);
        Continue(daemon);
        break;
      case 1:
        Kill(daemon);
        wait(1'000);
        Replace(daemon);
        break;
      case 2:
      case 3: {  // is replaced by one that dies or stops at a point
        const std::string point = daemon == kMaster
                                      ? kMasterPoints[random() % std::size(kMasterPoints)]
                                      : kStorePoints[random() % std::size(kStorePoints)];
        const bool kills = random() % 2 == 0;
        Replace(daemon,
                {point + (kills ? ":kill:1:" : ":stop:1:") + std::to_string(random() % 20)});
        wait(3'000);
        if (HasEnded(pid(daemon))) Replace(daemon);
        Continue(daemon);
        break;
      }
      case 4: {  // is gone and swallows what is sent to it
        Kill(daemon);
        {
          const BlackHole hole(ports(daemon).data);
          wait(1'500);
        }
        Replace(daemon);
        break;
      }
    }
    wait(500);
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> good_{0};
  std::atomic<int> failed_{0};
  std::atomic<int> wrong_{0};
  std::atomic<int64_t> worst_over_ms_{-1'000'000};
};

TEST_F(ChaosTest, NothingIsWrongLostOrLeft) {
  std::cout << "seed " << g_seed << ", " << g_minutes << " minutes\n";
  SCOPED_TRACE("seed " + std::to_string(g_seed));
  StartTroublePool(uint64_t{96} << 20, /*stores=*/3);
  std::mt19937_64 random(g_seed);
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) clients.emplace_back([this, c] { Work(c); });
  const MonoTime until = Clock::Real().Mono() + absl::Minutes(g_minutes);
  int troubles = 0;
  while (Clock::Real().Mono() < until && !HasFailure()) {
    Trouble(random);
    // Now and then all must be well again.
    if (++troubles % 10 == 0) {
      for (int d = 0; d < 4; ++d) {
        if (HasEnded(pid(d))) Replace(d);
        Continue(d);
      }
      AwaitService();
    }
  }
  for (int d = 0; d < 4; ++d) {
    if (HasEnded(pid(d))) Replace(d);  // died at its point after we had looked
    Continue(d);
  }
  AwaitService();
  const int before = good_;
  EXPECT_TRUE(Eventually([&] { return good_ >= before + 200; })) << "the clients do not recover";
  stop_ = true;
  for (std::thread& client : clients) client.join();
  std::cout << troubles << " troubles, " << good_ << " calls did what they were asked, " << failed_
            << " ended with a status or a miss, " << wrong_ << " were wrong; the latest ended "
            << worst_over_ms_ << " ms after its deadline\n";
  // A point that had not been passed yet may act in what follows.
  for (int d = 0; d < 4; ++d) Replace(d);
  AwaitService();
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace cistern

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (i + 1 < argc && flag == "--minutes") {
      cistern::g_minutes = std::atof(argv[++i]);
    } else if (i + 1 < argc && flag == "--seed") {
      cistern::g_seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::cerr << "usage: chaos_test [--minutes N] [--seed N]\n";
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
