// Memory is the caller's again when a call has returned, whatever the store does afterwards.
#include <cstring>
#include <iostream>

#include "tests/integration/trouble/trouble_fixture.h"

namespace cistern {
namespace {

constexpr uint64_t kBytes = 24 << 20;
constexpr absl::Duration kDeadline = absl::Milliseconds(250);

// Over every wire that clients have.
class LandingTest : public TroubleFixture, public ::testing::WithParamInterface<Wire> {
 protected:
  void SetUp() override {
    StartTroublePool(uint64_t{160} << 20, /*stores=*/1);
    if (HasFatalFailure()) return;
    ClientOptions options = ConnectOptions();
    options.wire = GetParam();
    buffer_ = Buffer();
    ns_.reset();
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(options));
    ASSERT_OK_AND_ASSIGN(ns_, client_->OpenNamespace("test", "v1"));
    ASSERT_OK_AND_ASSIGN(buffer_, client_->AllocateBuffer(kBufferBytes));
  }
  // All that was under way has arrived when this has.
  void Flush() {
    ASSERT_TRUE(Eventually([&] { return Put("flush", 1, 4'096) != ChunkCode::kUnavailable; }));
    std::string into(4'096, '\0');
    ASSERT_OK_AND_ASSIGN(const Buffer buffer,
                         client_->RegisterBuffer({.data = into.data(), .bytes = into.size()}));
    const Span span{into.data(), into.size()};
    const GetItem item{.id = Id("flush"), .memory = {.spans = {&span, 1}}};
    ASSERT_TRUE(Eventually([&] {
      return ns_->BatchGet({&item, 1}).items[0].code == ChunkCode::kOk;
    }));
  }
};

TEST_P(LandingTest, NoByteOfAStoppedStoreLandsAfterTheGetHasReturned) {
  ASSERT_EQ(Put("large", 1, kBytes), ChunkCode::kOk) << message_;
  const std::string untouched(kBytes, '\xEE');
  char* const memory = At(kBufferBytes / 2);
  int began = 0;
  for (const int skip : {0, 1, 7, 20, 41}) {
    SCOPED_TRACE(skip);
    // It stops where it has sent some, before it sends more.
    Replace(Store(0), {"store.get.streaming:stop:1:" + std::to_string(skip)});
    AwaitService();
    std::memset(memory, 0, kBytes);
    const Span span{memory, kBytes};
    const GetItem item{.id = Id("large"), .memory = {.spans = {&span, 1}}};
    GetOptions options;
    options.deadline = kDeadline;
    const BatchResult result = ns_->BatchGet({&item, 1}, options);
    const ChunkCode code = result.items[0].code;
    EXPECT_TRUE(code == ChunkCode::kDeadlineExceeded || code == ChunkCode::kUnavailable)
        << ChunkCodeName(code) << " " << result.message;
    ASSERT_TRUE(Eventually([&] { return HasStopped(pid(Store(0))); }))
        << "the call failed for another reason";
    began += memory[8'192] != '\0' ? 1 : 0;
    std::memcpy(memory, untouched.data(), kBytes);
    Continue(Store(0));
    ASSERT_NO_FATAL_FAILURE(Flush());
    ASSERT_TRUE(std::string_view(memory, kBytes) == untouched);
  }
  EXPECT_GT(began, 0) << "no get was in the midst of its bytes";
  EXPECT_EQ(Get("large", kBytes), ChunkCode::kOk) << message_;
  EXPECT_TRUE(Brought(1, kBytes));
}

TEST_P(LandingTest, NoByteIsReadForAStoppedStoreAfterThePutHasReturned) {
  const Span span{At(0), kBytes};
  int round = 0;
  for (const char* point :
       {"store.put.receiving:stop", "store.put.receiving:stop:1:20",
        "store.put.receiving:stop:1:60", "store.put.received:stop", "store.put.committed:stop"}) {
    const std::string key = "put " + std::to_string(++round);
    SCOPED_TRACE(point);
    // Where it has taken some bytes, and the kernel holds more of them.
    Replace(Store(0), {point});
    AwaitService();
    FillPattern(static_cast<uint64_t>(round), At(0), kBytes);
    const PutItem item{.id = Id(key), .memory = {.spans = {&span, 1}}};
    PutOptions options;
    options.deadline = absl::Seconds(1);  // a busy host takes its time to bring it to the point
    // Until it gets there: on a busy host a store that has just come back may be too late for one.
    ChunkCode code = ChunkCode::kInternal;
    ASSERT_TRUE(Eventually([&] {
      code = ns_->BatchPut({&item, 1}, options).items[0].code;
      return HasStopped(pid(Store(0)));
    })) << ChunkCodeName(code);
    EXPECT_TRUE(code == ChunkCode::kDeadlineExceeded || code == ChunkCode::kUnavailable)
        << ChunkCodeName(code);
    std::memset(At(0), 0xEE, kBytes);
    Continue(Store(0));
    ASSERT_NO_FATAL_FAILURE(Flush());
    // The put either came to its end before, or to none: it never has the bytes of afterwards.
    const ChunkCode got = Get(key, kBytes);
    EXPECT_TRUE(got == ChunkCode::kNotFound || got == ChunkCode::kOk) << ChunkCodeName(got);
    if (got == ChunkCode::kOk) {
      EXPECT_TRUE(Brought(static_cast<uint64_t>(round), kBytes));
    }
  }
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Tcp, LandingTest, ::testing::Values(Wire::kTcp));
INSTANTIATE_TEST_SUITE_P(Shm, LandingTest, ::testing::Values(Wire::kShm));

}  // namespace
}  // namespace cistern
