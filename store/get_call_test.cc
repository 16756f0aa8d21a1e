// Gets whose chunks the store verifies first: on the thread for that, a slice at a time.
#include "store/get_call.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/data.pb.h"
#include "store/calls_testing.h"

namespace cistern::store {
namespace {

using Statuses = std::vector<int>;

class VerifyingGetTest : public CallsTestBase {
 protected:
  void SetUp() override {
    wire::NamespaceOptions options;
    options.set_verify(wire::VERIFY_OFF);  // so the store verifies
    Bind(options);
    context_.run_verifying = [this](absl::AnyInvocable<void()> task) {
      if (full_) return false;
      queue_.push_back(std::move(task));
      return true;
    };
    for (uint64_t n = 1; n <= 3; ++n) ASSERT_NE(Put(n, 5'000), Version(0));
  }
  void TearDown() override {
    queue_.clear();
    CallsTestBase::TearDown();
  }

  void Ask(const std::vector<uint64_t>& chunks, uint32_t bytes, Outcome* outcome,
           uint32_t deadline_ms = 10'000) {
    wire::GetRequest request;
    request.set_ns_ref(ref_);
    for (const uint64_t n : chunks) request.mutable_ids()->append(NameOf(n).id.view());
    request.mutable_target_lengths()->assign(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    request.set_deadline_ms(deadline_ms);
    ServeGet(context_, Call(transport::FrameType::kGet, request, outcome));
  }
  // The verifying thread's next task. False: there is none.
  bool Step() {
    if (queue_.empty()) return false;
    absl::AnyInvocable<void()> task = std::move(queue_.front());
    queue_.pop_front();
    task();
    return true;
  }
  void RunAll() {
    while (Step()) {
    }
  }
  // One each.
  static Statuses StatusesOf(const Outcome& outcome) {
    EXPECT_TRUE(outcome.answered);
    EXPECT_FALSE(outcome.failed.has_value()) << *outcome.failed;
    wire::GetHead head;
    EXPECT_TRUE(head.ParseFromString(outcome.meta));
    EXPECT_EQ(head.payload_bytes(), outcome.payload.size());
    return {head.statuses().begin(), head.statuses().end()};
  }
  // The stream that brings these chunks of 5,000 bytes: each one's digest, then its bytes.
  static std::string Sent(const std::vector<uint64_t>& chunks) {
    std::string out;
    for (const uint64_t n : chunks) {
      const std::string bytes = PatternBytes(n, 5'000);
      const PartDigest digest = DigestOf(bytes.data(), bytes.size());
      out.append(reinterpret_cast<const char*>(&digest), sizeof(digest));
      out += bytes;
    }
    return out;
  }
  void Corrupt(uint64_t n) {
    const ChunkRef ref = store_->Acquire(ns_, NameOf(n), now_);
    ASSERT_TRUE(ref);
    const_cast<char*>(ref.payload().data())[17] ^= 1;
  }
  bool Verified(uint64_t n) { return store_->Acquire(ns_, NameOf(n), now_).verified(); }

  bool full_ = false;
  std::deque<absl::AnyInvocable<void()>> queue_;
};

// Whoever shares the loop thread with it is served meanwhile.
TEST_F(VerifyingGetTest, LoopThreadIsFreeWhileChunksAreVerified) {
  Outcome first;
  Ask({1}, 5'000, &first);
  RunAll();
  ASSERT_EQ(StatusesOf(first), (Statuses{wire::CHUNK_OK}));
  EXPECT_TRUE(Verified(1));

  Outcome verifying;
  Outcome verified;
  Ask({1, 2, 3}, 5'000, &verifying);
  EXPECT_FALSE(verifying.answered);
  EXPECT_FALSE(Verified(2));
  Ask({1}, 5'000, &verified);
  EXPECT_EQ(StatusesOf(verified), (Statuses{wire::CHUNK_OK}));
  RunAll();
  EXPECT_EQ(StatusesOf(verifying), (Statuses{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_OK}));
  EXPECT_TRUE(verifying.payload == Sent({1, 2, 3}));
}

TEST_F(VerifyingGetTest, LargeGetTakesTurnsWithSmallOnes) {
  constexpr uint32_t kLarge = 2 << 20;  // three are more than a slice of 4 MiB
  for (uint64_t n = 11; n <= 13; ++n) ASSERT_NE(Put(n, kLarge), Version(0));
  ASSERT_NE(Put(14, 5'000), Version(0));
  Outcome large;
  Outcome small;
  Ask({11, 12, 13}, kLarge, &large);
  Ask({14}, 5'000, &small);
  ASSERT_TRUE(Step());  // the large one's first slice
  EXPECT_FALSE(large.answered);
  EXPECT_TRUE(Verified(12));
  EXPECT_FALSE(Verified(13));
  ASSERT_TRUE(Step());
  EXPECT_EQ(StatusesOf(small), (Statuses{wire::CHUNK_OK}));
  EXPECT_FALSE(large.answered);
  ASSERT_TRUE(Step());
  // All of it, however much it was.
  EXPECT_EQ(StatusesOf(large), (Statuses{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_OK}));
  EXPECT_FALSE(Step());
}

TEST_F(VerifyingGetTest, NothingIsVerifiedForACallerWhoseTimeIsOver) {
  Outcome late;
  Ask({1}, 5'000, &late, 100);
  clock_.step = absl::Milliseconds(100);
  RunAll();
  EXPECT_EQ(StatusesOf(late), (Statuses{wire::CHUNK_UNAVAILABLE}));
  EXPECT_EQ(late.payload, "");
  clock_.step = absl::ZeroDuration();
  EXPECT_FALSE(Verified(1));
}

TEST_F(VerifyingGetTest, WhatWasVerifiedInTimeIsServed) {
  Outcome outcome;
  Ask({1, 2, 3}, 5'000, &outcome, 100);
  clock_.step = absl::Milliseconds(40);  // looked at 40, 80 and 120 ms later
  RunAll();
  clock_.step = absl::ZeroDuration();
  EXPECT_EQ(StatusesOf(outcome),
            (Statuses{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_UNAVAILABLE}));
  EXPECT_TRUE(outcome.payload == Sent({1, 2}));
}

TEST_F(VerifyingGetTest, WhereTooMuchWaitsOnlyWhatIsVerifiedIsServed) {
  Outcome first;
  Ask({2}, 5'000, &first);
  RunAll();
  full_ = true;
  Outcome refused;
  Ask({1, 2, 3}, 5'000, &refused);
  EXPECT_EQ(StatusesOf(refused),
            (Statuses{wire::CHUNK_UNAVAILABLE, wire::CHUNK_OK, wire::CHUNK_UNAVAILABLE}));
  EXPECT_TRUE(refused.payload == Sent({2}));
  full_ = false;
  Outcome again;
  Ask({1, 2, 3}, 5'000, &again);
  RunAll();
  EXPECT_EQ(StatusesOf(again), (Statuses{wire::CHUNK_OK, wire::CHUNK_OK, wire::CHUNK_OK}));
}

TEST_F(VerifyingGetTest, RottenChunkIsDroppedAndTheOthersServed) {
  ASSERT_NO_FATAL_FAILURE(Corrupt(2));
  int pokes = 0;
  context_.poke_session = [&pokes] { ++pokes; };
  Outcome outcome;
  Ask({1, 2, 3}, 5'000, &outcome);
  RunAll();
  EXPECT_EQ(StatusesOf(outcome), (Statuses{wire::CHUNK_OK, wire::CHUNK_DATA_LOSS, wire::CHUNK_OK}));
  EXPECT_TRUE(outcome.payload == Sent({1, 3}));
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(pokes, 1);  // the master is to hear of it
}

TEST_F(VerifyingGetTest, ChunkStaysInPlaceThoughItIsRemovedMeanwhile) {
  Outcome outcome;
  Ask({1}, 5'000, &outcome);
  RemoveAll();
  ASSERT_FALSE(Has(1));
  // Would take the first free extent.
  ns_ = *store_->BindNamespace(TestNamespace("another"));
  ASSERT_NE(Put(99, 5'000), Version(0));
  RunAll();
  EXPECT_EQ(StatusesOf(outcome), (Statuses{wire::CHUNK_OK}));
  EXPECT_TRUE(outcome.payload == Sent({1}));
}

TEST_F(VerifyingGetTest, NothingIsVerifiedForACallerWhoHasGone) {
  ASSERT_NO_FATAL_FAILURE(Corrupt(1));
  Outcome outcome;
  Ask({1}, 5'000, &outcome);
  aborted_ = true;
  RunAll();
  EXPECT_FALSE(outcome.answered);
  EXPECT_TRUE(Has(1));  // nobody looked
}

// A chunk that two calls wait for is hashed once.
TEST_F(VerifyingGetTest, VerifiedMeanwhileIsNotHashedAgain) {
  Outcome first;
  Outcome second;
  Ask({1}, 5'000, &first);
  Ask({1}, 5'000, &second);
  ASSERT_TRUE(Step());
  EXPECT_EQ(StatusesOf(first), (Statuses{wire::CHUNK_OK}));
  ASSERT_NO_FATAL_FAILURE(Corrupt(1));  // would be seen
  ASSERT_TRUE(Step());
  EXPECT_EQ(StatusesOf(second), (Statuses{wire::CHUNK_OK}));
  EXPECT_TRUE(Has(1));
}

}  // namespace
}  // namespace cistern::store
