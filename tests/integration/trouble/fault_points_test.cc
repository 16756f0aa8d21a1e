// Each process dies, and stops, between any two steps of a put, a get, a lookup, a session and a
// snapshot: no wrong byte, nothing lost that was acknowledged, nothing left behind, no call that
// hangs.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "tests/integration/trouble/trouble_fixture.h"

namespace cistern {
namespace {

// What brings a daemon to its fault point.
enum class By {
  kStart,   // its own start: the session, and the snapshot of a new incarnation
  kPut,     // puts of a small and a large chunk
  kGet,     // gets of what is there
  kLookup,  // lookups
  kRemove,  // removals: the master's commands
};

struct Point {
  const char* name;
  By by;
};

constexpr Point kStorePoints[] = {
    {"store.put.asked", By::kPut},         {"store.put.reserved", By::kPut},
    {"store.put.receiving", By::kPut},     {"store.put.received", By::kPut},
    {"store.put.before_commit", By::kPut}, {"store.header.filled", By::kPut},
    {"store.header.committed", By::kPut},  {"store.put.committed", By::kPut},
    {"store.put.answered", By::kPut},      {"store.session.delta", By::kPut},
    {"store.get.asked", By::kGet},         {"store.get.acquired", By::kGet},
    {"store.get.streaming", By::kGet},     {"store.get.answered", By::kGet},
    {"store.session.evict", By::kRemove},  {"store.session.hello", By::kStart},
    {"store.snapshot.begin", By::kStart},  {"store.snapshot.page", By::kStart},
    {"store.snapshot.end", By::kStart},
};

constexpr Point kMasterPoints[] = {
    {"master.lookup.decided", By::kLookup}, {"master.exists.decided", By::kLookup},
    {"master.place.decided", By::kPut},     {"master.session.delta", By::kPut},
    {"master.session.applied", By::kPut},   {"master.remove.asked", By::kRemove},
    {"master.session.hello", By::kStart},   {"master.session.welcomed", By::kStart},
    {"master.snapshot.begin", By::kStart},  {"master.snapshot.page", By::kStart},
    {"master.snapshot.end", By::kStart},
};

constexpr const char* kClientPoints[] = {
    "client.put.placed",      "client.put.sending", "client.put.ready",  "client.put.done",
    "client.lookup.answered", "client.get.head",    "client.get.landed", "client.get.done",
};

constexpr absl::Duration kDeadline = absl::Milliseconds(400);
constexpr uint64_t kKeptBytes = 200'000;
constexpr int kKept = 6;

// Sanitizers make each step many times slower: they see every fourth point.
#if defined(__has_feature)  // Clang's
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr size_t kStride = 4;
#else
constexpr size_t kStride = 1;
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStride = 4;
#else
constexpr size_t kStride = 1;
#endif

class FaultPointsTest : public TroubleFixture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { StartTroublePool(); }
  std::string action() const { return GetParam(); }
  bool kills() const { return action() == "kill"; }

  void PutKept() {
    for (int i = 0; i < kKept; ++i) {
      PutOptions options = Visible();
      options.affinity = static_cast<uint64_t>(i + 1) << 60;  // over both stores
      const ChunkCode code = Put(Kept(i), static_cast<uint64_t>(i), kKeptBytes, options);
      ASSERT_TRUE(code == ChunkCode::kOk || code == ChunkCode::kPresent)
          << ChunkCodeName(code) << " " << message_;
    }
  }
  static std::string Kept(int i) { return "kept " + std::to_string(i); }

  // One step of the work that leads to the point, with a short deadline. The call ends in time.
  void Step(By by) {
    const MonoTime start = Clock::Real().Mono();
    lateness_.Take();
    switch (by) {
      case By::kStart:
        Clock::Real().SleepFor(absl::Milliseconds(5));
        return;
      case By::kPut: {
        const uint64_t bytes = next_ % 2 == 0 ? 70'000 : 2'500'000;
        PutOptions options;
        options.deadline = kDeadline;
        options.affinity = static_cast<uint64_t>(next_ / 2) << 60;
        const std::string key = "put " + std::to_string(next_);
        const ChunkCode code = Put(key, static_cast<uint64_t>(next_), bytes, options);
        (code == ChunkCode::kOk ? acked_ : unsure_).push_back({key, next_, bytes});
        ++next_;
        break;
      }
      case By::kGet:
        for (int i = 0; i < kKept; ++i) {
          GetOptions options;
          options.deadline = kDeadline;
          if (Get(Kept(i), kKeptBytes, options) == ChunkCode::kOk) {
            EXPECT_TRUE(Brought(static_cast<uint64_t>(i), kKeptBytes)) << i;
          }
        }
        break;
      case By::kLookup: {
        LookupOptions options;
        options.deadline = kDeadline;
        options.lease_time = absl::Milliseconds(500);
        const std::vector<KeyId> ids = {Id(Kept(0)), Id(Kept(1)), Id("absent")};
        const auto found = ns_->Lookup(ids, options);
        EXPECT_TRUE(!found.ok() || !found->present[2]);
        (void)ns_->Exists(ids, options);
        break;
      }
      case By::kRemove: {
        RemoveOptions options;
        options.deadline = kDeadline;
        options.force = true;
        const int i = next_removed_++ % kKept;
        removed_.push_back(i);
        const KeyId id = Id(Kept(i));
        (void)ns_->Remove({&id, 1}, options);
        break;
      }
    }
    const absl::Duration calls = by == By::kGet      ? kDeadline * kKept
                                 : by == By::kLookup ? kDeadline * 2
                                                     : kDeadline;
    const absl::Duration over = Clock::Real().Mono() - start - calls;
    worst_ = std::max(worst_, over);
    EXPECT_LE(over, absl::Milliseconds(170) + 8 * lateness_.Take());
  }

  // The daemon fails at the point; afterwards all is as it should be.
  void Try(int daemon, const Point& point) {
    SCOPED_TRACE(std::string(point.name) + ":" + action());
    ASSERT_NO_FATAL_FAILURE(PutKept());
    acked_.clear();
    unsure_.clear();
    removed_.clear();
    ASSERT_NO_FATAL_FAILURE(Replace(daemon, {std::string(point.name) + ":" + action()}));
    const pid_t victim = pid(daemon);
    const auto failed = [&] { return kills() ? HasEnded(victim) : HasStopped(victim); };
    if (point.by != By::kStart) {
      ASSERT_TRUE(Eventually([&] { return AllServe() || failed(); }));
    }
    ASSERT_TRUE(Eventually([&] {
      if (failed()) return true;
      Step(point.by);
      return false;
    })) << "the point was never passed; "
        << LogTail(daemon);
    // While it is gone the calls go on ending in time.
    Step(By::kGet);
    Step(By::kLookup);
    if (kills()) {
      ASSERT_NO_FATAL_FAILURE(Replace(daemon));
    } else {
      Continue(daemon);
    }
    ASSERT_NO_FATAL_FAILURE(AwaitService());
    ExpectWhole();
    ASSERT_NO_FATAL_FAILURE(ExpectNothingIsLeft());
  }

  // What was acknowledged is there; whatever is there is right. (No store is ever full here, and
  // segments outlive their processes.)
  void ExpectWhole() {
    for (int i = 0; i < kKept; ++i) {
      const bool removed = std::find(removed_.begin(), removed_.end(), i) != removed_.end();
      ExpectChunk({Kept(i), i, kKeptBytes}, /*must=*/!removed);
    }
    for (const Chunk& put : acked_) ExpectChunk(put, /*must=*/true);
    for (const Chunk& put : unsure_) ExpectChunk(put, /*must=*/false);
  }
  struct Chunk {
    std::string key;
    int seed;
    uint64_t bytes;
  };
  void ExpectChunk(const Chunk& put, bool must) {
    ChunkCode code = ChunkCode::kNotFound;
    // A store may still be putting an end to the connection from before.
    const bool answered = Eventually([&] {
      code = Get(put.key, put.bytes);
      return code == ChunkCode::kOk || (code == ChunkCode::kNotFound && !must);
    });
    EXPECT_TRUE(answered) << put.key << ": " << ChunkCodeName(code) << " " << message_;
    if (code == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(static_cast<uint64_t>(put.seed), put.bytes)) << put.key;
    }
  }

  Lateness lateness_;
  std::vector<Chunk> acked_;
  std::vector<Chunk> unsure_;
  std::vector<int> removed_;
  int next_ = 0;
  int next_removed_ = 0;
  absl::Duration worst_ = -absl::InfiniteDuration();
};

TEST_P(FaultPointsTest, OfAStore) {
  for (size_t i = 0; i < std::size(kStorePoints); i += kStride) {
    ASSERT_NO_FATAL_FAILURE(Try(Store(0), kStorePoints[i]));
    if (HasFailure()) return;
  }
  std::cout << "  the latest call ended " << absl::FormatDuration(worst_)
            << " after its deadline\n";
}

TEST_P(FaultPointsTest, OfTheMaster) {
  for (size_t i = 0; i < std::size(kMasterPoints); i += kStride) {
    ASSERT_NO_FATAL_FAILURE(Try(kMaster, kMasterPoints[i]));
    if (HasFailure()) return;
  }
  std::cout << "  the latest call ended " << absl::FormatDuration(worst_)
            << " after its deadline\n";
}

TEST_P(FaultPointsTest, OfAClient) {
  for (size_t i = 0; i < std::size(kClientPoints); i += kStride) {
    const std::string point = kClientPoints[i];
    SCOPED_TRACE(point + ":" + action());
    ASSERT_OK_AND_ASSIGN(
        const auto worker,
        pool::ChildProcess::Start(
            {.name = "worker",
             .argv = {"tests/integration/trouble/worker", pool_->connection().data,
                      pool_->connection().token_file, point, "5", point + ":" + action() + ":1:2"},
             .log_path = pool_->dir() + "/worker.log"},
            Clock::Real()));
    const pid_t pid = worker->pid();
    ASSERT_TRUE(Eventually([&] { return kills() ? HasEnded(pid) : HasStopped(pid); }))
        << worker->LogTail();
    // Others do not notice.
    ASSERT_NO_FATAL_FAILURE(PutKept());
    Step(By::kGet);
    Step(By::kPut);
    if (!kills()) {
      worker->Signal(SIGCONT);
      ASSERT_TRUE(worker->WaitFor(absl::Seconds(60))) << worker->LogTail();
      EXPECT_EQ(worker->exit_code(), 0) << worker->LogTail();
    }
    ASSERT_NO_FATAL_FAILURE(ExpectNothingIsLeft());
  }
}

INSTANTIATE_TEST_SUITE_P(Actions, FaultPointsTest, ::testing::Values("kill", "stop"),
                         [](const auto& info) {
                           return std::string(info.param) == "kill" ? "Killed" : "Stopped";
                         });

}  // namespace
}  // namespace cistern
