#include "master/segment_commands.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "master/core_testing.h"

namespace cistern::master {
namespace {

// A master that one store has a session with.
class Master final : public SessionOutput {
 public:
  Master(StateStore& state, Clock& clock) : driver_(Options(), state, clock), commands_(driver_) {
    driver_.SetOutput(this);
    const wire::SessionHello hello = TestPool().Hello(0, TestPool::kMiB, 1);
    driver_.With([&](MasterCore& core, MonoTime now) {
      EXPECT_OK(core.Start(now));
      const auto opened = core.OnHello(hello, now);
      EXPECT_OK(opened.status());
      if (opened.ok()) session_ = opened->session;
    });
  }
  ~Master() override { commands_.Close(); }

  bool CanTake(SessionId) override { return true; }
  void Deliver(SessionId, std::vector<wire::MasterMessage> messages) override {
    for (const wire::MasterMessage& m : messages) {
      if (m.has_segment_command()) numbers_.push_back(m.segment_command().command());
    }
  }

  // Orders an unmount; its number.
  uint64_t Order(std::optional<absl::Status>* status) {
    wire::SegmentCommand command;
    command.mutable_unmount()->set_segment("extra");
    const size_t before = numbers_.size();
    commands_.Send("store-0", command, driver_.clock().Mono() + absl::Seconds(10),
                   [status](absl::Status s, const SegmentCommands::Answer&) { *status = s; });
    EXPECT_EQ(numbers_.size(), before + 1);
    return numbers_.empty() ? 0 : numbers_.back();
  }
  void Answer(uint64_t number) {
    wire::SegmentDone done;
    done.set_command(number);
    commands_.OnAnswer(session_, done);
  }

 private:
  static CoreDriver::Options Options() {
    CoreDriver::Options options;
    options.core.random_bytes = [](void* out, size_t n) { std::memset(out, 7, n); };
    return options;
  }

  // Before the driver, which delivers into them.
  SessionId session_{0};
  std::vector<uint64_t> numbers_;
  CoreDriver driver_;
  SegmentCommands commands_;
};

TEST(SegmentCommandsTest, AnswerForTheMasterBeforeIsNotTaken) {
  MemoryStateStore state;
  FakeClock clock;
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  auto old_master = std::make_unique<Master>(state, clock);
  const uint64_t old_number = old_master->Order(&first);
  old_master.reset();
  EXPECT_EQ(first->code(), absl::StatusCode::kUnavailable);

  Master master(state, clock);
  const uint64_t number = master.Order(&second);
  EXPECT_EQ(old_number >> 32, 1u);
  EXPECT_EQ(number >> 32, 2u);
  master.Answer(old_number);
  EXPECT_FALSE(second.has_value());
  master.Answer(number);
  ASSERT_TRUE(second.has_value());
  EXPECT_OK(*second);
}

TEST(SegmentCommandsTest, EachOrderHasItsOwnNumber) {
  MemoryStateStore state;
  FakeClock clock;
  // Before the master, which ends what still waits as it goes.
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  Master master(state, clock);
  const uint64_t one = master.Order(&first);
  const uint64_t two = master.Order(&second);
  EXPECT_NE(one, two);
  master.Answer(two);
  EXPECT_TRUE(second.has_value());
  EXPECT_FALSE(first.has_value());
}

}  // namespace
}  // namespace cistern::master
