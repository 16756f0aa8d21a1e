#include "master/record_worker.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/test_util.h"
#include "master/core_driver.h"
#include "master/core_testing.h"
#include "master/pool_state.h"

namespace cistern::master {
namespace {

constexpr uint64_t kCapacity = uint64_t{4} << 30;

class RecordWorkerTest : public ::testing::Test {
 protected:
  RecordWorkerTest() : driver_({}, state_, Clock::Real()) {
    driver_.With([](MasterCore& core, MonoTime now) { CISTERN_CHECK(core.Start(now).ok()); });
  }
  SessionId Open(int store) {
    return driver_.With([&](MasterCore& core, MonoTime now) {
      return core.OnHello(messages_.Hello(store, kCapacity, /*incarnation=*/1), now)->session;
    });
  }
  static wire::StoreMessage Begin() {
    wire::StoreMessage message;
    message.mutable_snapshot_begin()->set_snapshot_id(1);
    return message;
  }
  // `count` chunks of a snapshot, from id `first` on.
  static wire::StoreMessage Page(uint64_t first, uint64_t count) {
    std::vector<TestRecord> records;
    for (uint64_t i = 0; i < count; ++i) records.push_back({.id = first + i, .version = i + 1});
    wire::StoreMessage message;
    message.mutable_snapshot_page()->set_snapshot_id(1);
    TestPool::FillRecords(records, message.mutable_snapshot_page()->mutable_records());
    return message;
  }

  TestPool messages_;  // for what it makes
  MemoryStateStore state_;
  CoreDriver driver_;
};

TEST_F(RecordWorkerTest, AppliesWhatIsAddedInOrderAndTellsOfErrors) {
  const SessionId session = Open(0);
  const wire::StoreMessage begin = Begin(), page = Page(1, 5'000), wrong = Page(1, 20'000);
  std::vector<absl::StatusCode> codes;
  uint64_t chunks = 0;
  const auto note = [&](const absl::Status& status) { codes.push_back(status.code()); };
  {
    RecordWorker worker(driver_);
    worker.Add(session, begin, note);
    worker.Add(session, page, [&](const absl::Status& status) {
      note(status);
      // Without a lock.
      chunks = driver_.With([](MasterCore& core, MonoTime) { return core.pool().index.size(); });
      worker.Add(session, wrong, note);
    });
  }
  EXPECT_EQ(codes, (std::vector{absl::StatusCode::kOk, absl::StatusCode::kOk,
                                absl::StatusCode::kInvalidArgument}));
  EXPECT_EQ(chunks, 5'000u);
}

// A short message does not wait for another store's long one.
TEST_F(RecordWorkerTest, MessagesTakeTurnsSliceBySlice) {
  const SessionId a = Open(0), b = Open(1);
  const wire::StoreMessage begin = Begin(), page = Page(1, 10'000);
  wire::StoreMessage heartbeat;
  heartbeat.mutable_heartbeat();
  std::vector<char> order;
  {
    RecordWorker worker(driver_);
    worker.Add(a, begin, [](const absl::Status& status) { EXPECT_OK(status); });
    // Under the lock, so that none has begun before both are there.
    driver_.With([&](MasterCore&, MonoTime) {
      worker.Add(a, page, [&](const absl::Status& status) {
        EXPECT_OK(status);
        order.push_back('a');
      });
      worker.Add(b, heartbeat, [&](const absl::Status& status) {
        EXPECT_OK(status);
        order.push_back('b');
      });
    });
  }
  EXPECT_EQ(order, (std::vector{'b', 'a'}));
}

// A batch of many steps, each of which holds the lock for a while.
struct LongCall {
  std::atomic<bool>& began;
  int steps = 0;
  bool Step(MasterCore&, MonoTime) {
    began = true;
    Clock::Real().SleepFor(absl::Milliseconds(1));
    return ++steps == 1'000;
  }
};

TEST_F(RecordWorkerTest, WhoWaitsForTheLockHasItBeforeTheBatchIsOver) {
  std::atomic<bool> began{false}, over{false};
  LongCall call{began};
  std::thread batch([&] {
    driver_.Run(call);
    over = true;
  });
  while (!began) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    driver_.With([](MasterCore&, MonoTime) {});
    EXPECT_FALSE(over) << i;
  }
  batch.join();
}

}  // namespace
}  // namespace cistern::master
